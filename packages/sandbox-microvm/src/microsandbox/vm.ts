import { chmod, copyFile, mkdir, readFile, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { RunningVm } from '../backend.ts'
import type { SecretRule } from '../egress/secrets.ts'
import { MicroVmError } from '../errors.ts'
import { connectGuest, type GuestConnection } from '../guest-connection.ts'
import { readGuestFile, writeGuestFile } from '../guest-files.ts'
import type { GuestNetwork } from '../network.ts'
import type { MicroVmSpec } from '../spec.ts'
import { startDriver } from './driver-process.ts'
import { AGENT_FOLDER, configOf, VM_NAME } from './plan.ts'
import { SecretValues } from './secret-values.ts'

/** The guest's number for the host's socket. */
const PORT = 7333
/** With hardware a boot takes under a second; nested in emulation, on a busy machine, more than a minute. */
const BOOT_MS = 180_000
const AGENT_MS = 60_000
const SECRETS_MS = 30_000
/** For the guest to write its disk out; then it is ended. */
const POWER_OFF_MS = 10_000
const STOP_MS = 30_000

/** What a boot takes. */
export type VmParts = {
  readonly spec: MicroVmSpec
  /** Ours; the SDK's is then none. */
  readonly network?: GuestNetwork
  /** For the SDK's network, each with a value. */
  readonly secrets: readonly SecretRule[]
  readonly disk: string
  /** The SDK's folder. */
  readonly home: string
  /** Made here and removed at the end. */
  readonly socketDir: string
  readonly searchPath?: readonly string[]
  readonly now: () => number
  readonly randomBytes: (length: number) => Uint8Array
  readonly signal: AbortSignal
  /** Called once when the VM ends by itself. */
  readonly onLost: (error: MicroVmError) => void
}

/** Boots a VM and waits until the guest agent in it serves. A boot that fails leaves no process and no socket. */
export async function startVm(parts: VmParts): Promise<Omit<RunningVm, 'diskBytes'>> {
  const { home, socketDir, secrets, now, signal } = parts
  const agentFolder = await placeAgent(home)
  await mkdir(socketDir, { recursive: true, mode: 0o700 })
  const listener = await listenOnce(join(socketDir, 'agent'))
  const config = configOf(parts.spec, secrets, {
    disk: parts.disk,
    socket: join(socketDir, 'agent'),
    port: PORT,
    agent: agentFolder,
  })
  let guest: GuestConnection | undefined
  const driver = await startDriver({
    home,
    ...(parts.searchPath === undefined ? {} : { searchPath: parts.searchPath }),
    onEnded: (text) => guest?.fail(new MicroVmError('guest_lost', `the guest agent ended: ${text}`)),
  })
  const closed = driver.closed.then(async () => {
    guest?.fail(new MicroVmError('guest_lost', 'the VM ended; the next command starts it again'))
    listener.close()
    await rm(socketDir, { recursive: true, force: true })
  })
  const onAbort = (): void => driver.kill()
  signal.addEventListener('abort', onAbort, { once: true })
  const values = new SecretValues(secrets)
  /** One change after the other: each waits for the one before. */
  let telling = Promise.resolve()
  const tellSecrets = (): Promise<void> => {
    telling = telling
      .catch(() => undefined)
      .then(async () => {
        const change = values.change()
        if (change === undefined) return
        await driver.request({ type: 'secrets', name: VM_NAME, ...change }, SECRETS_MS)
        values.told(change)
      })
    return telling
  }

  try {
    if (signal.aborted) throw aborted()
    await driver.request(
      { type: 'start', config, command: { path: `${AGENT_FOLDER}/agent`, args: [String(PORT)] } },
      BOOT_MS,
    )
    guest = connectGuest(await inTime(listener.connection, AGENT_MS), parts.onLost, now)
    await inTime(guest.ready, AGENT_MS)
    await guest.setTime(now())
    await guest.seed(parts.randomBytes(64))
    if (parts.network !== undefined) await guest.openNetwork(parts.network)
    await tellSecrets()
    // The SDK made it for this home; where our own network puts its own, programs are told to look.
    if (secrets.length > 0) await guest.trust(await readFile(join(home, 'tls', 'ca.crt'), 'utf8'))
  } catch (error) {
    driver.kill()
    await closed
    throw signal.aborted ? aborted() : error
  } finally {
    signal.removeEventListener('abort', onAbort)
  }

  const connection = guest
  return {
    accelerator: 'kvm',
    pid: driver.pid,
    exec: async (command) => {
      await tellSecrets()
      return connection.exec(command)
    },
    readFile: (read) => readGuestFile(connection, read),
    writeFile: (write) => writeGuestFile(connection, write, Buffer.from(parts.randomBytes(8)).toString('hex')),
    stop: async () => {
      connection.shutdown()
      // What does not end is killed: the next start clears its record.
      await driver.request({ type: 'stop', name: VM_NAME, ms: POWER_OFF_MS }, STOP_MS).catch(() => undefined)
      driver.kill()
      await closed
    },
  }
}

/** A folder of its own for the guest to see, with the agent in it and nothing else. */
async function placeAgent(home: string): Promise<string> {
  const folder = join(home, 'agent')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const file = join(folder, 'agent')
  await copyFile(fileURLToPath(new URL('../../assets/guest-agent-x86_64', import.meta.url)), file)
  await chmod(file, 0o755)
  return folder
}

/** Takes one connection: a second one would be a program of the guest's that passes itself off as the agent. */
async function listenOnce(path: string): Promise<{ readonly connection: Promise<Socket>; readonly close: () => void }> {
  await rm(path, { force: true })
  const server = createServer()
  const connection = new Promise<Socket>((resolve) =>
    server.once('connection', (socket) => {
      server.close()
      resolve(socket)
    }),
  )
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, resolve)
  })
  return { connection, close: () => void server.close() }
}

async function inTime<T>(work: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new MicroVmError('boot_failed', `the guest agent did not answer within ${ms / 1000} s`)),
      ms,
    )
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

const aborted = (): MicroVmError => new MicroVmError('aborted', 'the start was cancelled')
