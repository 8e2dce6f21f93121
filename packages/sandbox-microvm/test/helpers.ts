import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  createMicroVm,
  type ExecRequest,
  type MicroVm,
  type MicroVmEvent,
  type MicroVmHost,
  type MicroVmOptions,
  type MicroVmSpec,
  probeBackends,
} from '../src/index.ts'

/** The image of `npm start`: tests and demonstration build it once. */
export const image = { ref: 'debian:trixie-slim', packages: ['git', 'python3'] }

/** The cache of the programs, so that nothing is built twice on one machine. */
export const cacheDir = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'reve')

const folders: string[] = []

/** A new folder with a short real path, removed by `removeFolders`. */
export function folder(): string {
  const path = realpathSync(mkdtempSync(join(tmpdir(), 'mv-')))
  folders.push(path)
  return path
}

export function removeFolders(): void {
  for (const path of folders.splice(0)) rmSync(path, { recursive: true, force: true })
}

export type Bench = {
  readonly root: string
  readonly workspace: string
  readonly host: MicroVmHost
  readonly spec: MicroVmSpec
  readonly events: MicroVmEvent[]
  readonly vm: MicroVm
}

/** A VM of a test's own, with a workspace; nothing is started. */
export function bench(
  spec: Partial<MicroVmSpec> = {},
  host: Partial<MicroVmHost> = {},
  root = folder(),
  options: MicroVmOptions = {},
): Bench {
  const workspace = join(root, 'workspace')
  mkdirSync(workspace, { recursive: true })
  const events: MicroVmEvent[] = []
  const around: MicroVmHost = {
    cacheDir,
    runtimeDir: join(root, 'run'),
    onEvent: (event) => events.push(event),
    ...host,
  }
  const whole: MicroVmSpec = {
    name: 'test',
    stateDir: join(root, 'state'),
    image,
    cpus: 2,
    memoryMiB: 512,
    diskMiB: 4096,
    mounts: [{ host: workspace, guest: '/workspace' }],
    workdir: '/workspace',
    env: {},
    egress: { kind: 'none' },
    bootstrap: [],
    idleStopMs: 120_000,
    ...spec,
  }
  return {
    root,
    workspace,
    host: around,
    spec: whole,
    events,
    vm: createMicroVm(whole, around, { backend: 'qemu', ...options }),
  }
}

export type Ran = { readonly code: number; readonly out: string; readonly err: string }

/** Runs shell text in the guest. */
export async function sh(vm: MicroVm, text: string, request: Partial<ExecRequest> = {}): Promise<Ran> {
  const result = await vm.exec({ argv: ['sh', '-c', text], ...request })
  return {
    code: result.exitCode,
    out: Buffer.from(result.stdout).toString(),
    err: Buffer.from(result.stderr).toString(),
  }
}

/** Why no VM boots on this machine, or undefined. Printed, since it skips tests. */
export async function whyNoVm(): Promise<string | undefined> {
  const root = mkdtempSync(join(tmpdir(), 'mv-'))
  const reports = await probeBackends({ cacheDir, runtimeDir: join(root, 'run') })
  rmSync(root, { recursive: true })
  if (reports.some(({ backend, ok }) => backend === 'qemu' && ok)) return undefined
  const why = reports.map(({ backend, reason }) => `${backend}: ${reason}`).join('; ')
  console.warn(`tests that need a VM are skipped: ${why}`)
  return why
}

export const wait = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms))

/** Resolves when `holds`, or fails after a generous while. */
export async function until(holds: () => boolean | Promise<boolean>, what: string, ms = 30_000): Promise<void> {
  for (const end = Date.now() + ms; Date.now() < end; await wait(50)) if (await holds()) return
  throw new Error(`not within ${ms / 1000} s: ${what}`)
}
