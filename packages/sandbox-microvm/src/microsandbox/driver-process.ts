import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sanitiseLine } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import { DEFAULT_SEARCH_PATH, spawnHost } from '../host-process.ts'
import type { DriverMessage, DriverRequest } from './driver-protocol.ts'

/** A running driver (see driver.ts), seen from its owner. */
export type Driver = {
  readonly pid: number
  /** Resolves when the process is gone. The VM that it held ends within some seconds of that. */
  readonly closed: Promise<void>
  /** @throws MicroVmError `boot_failed` with the SDK's own words, also when it takes longer than `ms` */
  request(request: DriverRequest, ms: number): Promise<void>
  kill(): void
}

/** What a process wrote that is worth showing when it dies of itself. */
const SAID_BYTES = 4000

/** Starts a driver whose SDK keeps its state in `home`; what it starts in the guest tells its end by `onEnded`. */
export async function startDriver(options: {
  readonly home: string
  readonly searchPath?: readonly string[]
  readonly onEnded: (text: string) => void
}): Promise<Driver> {
  const { home } = options
  const temporary = join(home, 'tmp')
  await mkdir(temporary, { recursive: true, mode: 0o700 })
  // `driver.ts` beside the sources, `driver.js` beside the build.
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))
  const child = spawnHost('node', [fileURLToPath(new URL(`./driver${extension}`, import.meta.url))], {
    searchPath: options.searchPath ?? DEFAULT_SEARCH_PATH,
    // Its home is its own: no configuration and no credentials of the user's are read.
    env: { MSB_HOME: home, HOME: home, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // A session of its own: an interrupt that is typed for the owner is not meant for the VM.
    detached: true,
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-SAID_BYTES)))

  const open = new Map<number, { readonly settle: (error?: MicroVmError) => void }>()
  let gone: MicroVmError | undefined
  const closed = Promise.withResolvers<void>()
  const end = (why: string): void => {
    const last = said
      .trim()
      .split('\n')
      .slice(-3)
      .map((line) => sanitiseLine(line, 200))
      .join(' | ')
    gone ??= new MicroVmError(
      'boot_failed',
      `the process around microsandbox ended (${why})${last === '' ? '' : `: ${last}`}`,
    )
    for (const { settle } of open.values()) settle(gone)
    open.clear()
    closed.resolve()
  }
  child.once('error', (error) => end(String(error)))
  child.once('exit', (code, signal) => end(signal ?? `code ${code}`))
  child.on('message', (message: DriverMessage) => {
    if (message.type === 'ended') return options.onEnded(sanitiseLine(message.text, 500))
    const request = open.get(message.id)
    open.delete(message.id)
    return request?.settle(message.type === 'done' ? undefined : failed(message.code, message.text))
  })

  let next = 0
  return {
    pid: child.pid ?? 0,
    closed: closed.promise,
    request: async (request, ms) => {
      if (gone !== undefined) throw gone
      const id = next++
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      open.set(id, { settle: (error) => (error === undefined ? resolve() : reject(error)) })
      const timer = setTimeout(
        () => reject(new MicroVmError('boot_failed', `microsandbox did not ${request.type} within ${ms / 1000} s`)),
        ms,
      )
      child.send({ id, request }, (error) => {
        if (error !== null) end(error.message)
      })
      try {
        await promise
      } finally {
        clearTimeout(timer)
        open.delete(id)
      }
    },
    kill: () => void child.kill('SIGKILL'),
  }
}

function failed(code: string, text: string): MicroVmError {
  const line = sanitiseLine(text, 1000)
  if (code === 'ERR_MODULE_NOT_FOUND')
    return new MicroVmError('backend_unavailable', `the package "microsandbox" is not installed: ${line}`)
  return new MicroVmError('boot_failed', `microsandbox says (${sanitiseLine(code, 60)}): ${line}`)
}
