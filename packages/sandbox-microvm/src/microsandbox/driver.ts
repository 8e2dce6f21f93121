/**
 * A process of its own around the SDK: its native part reads the environment of its process (where its state lies, which
 * service it uses, what a secret is), and ends that process when it fails an assertion. Its owner speaks with it over the IPC
 * channel; when that closes, however its owner died, it ends, and the VM that it holds with it.
 */
import type * as Microsandbox from 'microsandbox'
import type { DriverMessage, DriverRequest, SecretValue } from './driver-protocol.ts'
import { buildSandbox, type SandboxConfig } from './sandbox-config.ts'

type Module = typeof Microsandbox

const say = (message: DriverMessage): void => {
  process.send?.(message)
}

let loaded: Promise<Module> | undefined
const sdk = (): Promise<Module> =>
  (loaded ??= import('microsandbox').then((module) => {
    // Never a service of somebody else's, whatever is configured on this machine.
    module.setDefaultBackend('local')
    return module
  }))

/** What a killed owner left in this home: nobody else uses it. */
async function clear({ Sandbox }: Module): Promise<void> {
  for (const left of (await Sandbox.list()).sandboxes) {
    if (left.status !== 'stopped' && left.status !== 'crashed') await left.killWithTimeout(10_000)
    await (await left.refresh()).destroy({ force: true })
  }
}

async function start(config: SandboxConfig, path: string, args: readonly string[]): Promise<void> {
  const module = await sdk()
  await clear(module)
  const vm = await buildSandbox(module, config).create()
  const running = await vm.execStreamWith(path, (options) => options.args([...args]).stdinNull())
  void follow(running)
}

async function follow(running: AsyncIterable<{ readonly kind: string; readonly data?: Uint8Array }>): Promise<void> {
  let said = ''
  try {
    for await (const event of running) if (event.data !== undefined) said = (said + Buffer.from(event.data)).slice(-500)
    say({ type: 'ended', text: said })
  } catch (error) {
    say({ type: 'ended', text: String(error) })
  }
}

async function attempt(name: string, root: string): Promise<void> {
  const module = await sdk()
  await clear(module)
  const vm = await module.Sandbox.builder(name)
    .imageWith((image) => image.bind(root))
    .pullPolicy('never')
    .cpus(1)
    .memory(128)
    .disableNetwork()
    .detached(false)
    .replace()
    .create()
  await vm.kill()
  await clear(module)
}

/** A reference to this process' environment, set here and not at its start, is seen in no list of processes. */
async function setSecrets(name: string, values: readonly SecretValue[], removed: readonly string[]): Promise<void> {
  const handle = await (await sdk()).Sandbox.get(name)
  // oxlint-disable-next-line node/no-process-env
  for (const { source, value } of values) process.env[source] = value
  const plan = await handle.modify({
    secrets: Object.fromEntries(values.map(({ variable, source }) => [variable, { env: source }])),
    ...(removed.length === 0 ? {} : { secretsRemove: [...removed] }),
  })
  const [conflict] = plan.conflicts
  if (conflict !== undefined) throw new Error(`${conflict.field}: ${conflict.message}`)
  if (!plan.applied) throw new Error('the secrets were not taken')
}

async function stop(name: string, ms: number): Promise<void> {
  const { Sandbox } = await sdk()
  const handle = await Sandbox.get(name)
  await handle.stopWithTimeout(ms)
  await (await handle.refresh()).destroy({ force: true })
}

async function serve(request: DriverRequest): Promise<void> {
  switch (request.type) {
    case 'start':
      return start(request.config, request.command.path, request.command.args)
    case 'try':
      return attempt(request.name, request.root)
    case 'secrets':
      return setSecrets(request.name, request.values, request.removed)
    case 'stop':
      return stop(request.name, request.ms)
    default:
      return request satisfies never
  }
}

/** The SDK's own word for what went wrong: a property of its errors, or the start of a native one's message. */
function failure(error: unknown): { readonly code: string; readonly text: string } {
  const text = error instanceof Error ? error.message : String(error)
  const [, variant, rest] = /^\[(\w+)\] ([\s\S]*)$/.exec(text) ?? []
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
  return { code: variant ?? code, text: rest ?? text }
}

process.on('message', (message: { readonly id: number; readonly request: DriverRequest }) => {
  serve(message.request).then(
    () => say({ type: 'done', id: message.id }),
    (error: unknown) => say({ type: 'failed', id: message.id, ...failure(error) }),
  )
})
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'))
