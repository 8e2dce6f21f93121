import { spawn, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createMicroVm, type MicroVm } from '@reve/sandbox-microvm'
import type { Comparison } from './measure.ts'

const cacheDir = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'reve')
const BYTES = 100_000_000
const FILES = 2000
/** The environment of the commands here: no configuration of whoever runs this. */
const env = {
  PATH: process.env['PATH'] ?? '/usr/bin:/bin',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_SYSTEM: '/dev/null',
}

type Place = {
  readonly vm: MicroVm
  /** Folder of the host that the VM has as /workspace, and its twin for the host's own commands. */
  readonly shared: string
  readonly here: string
}
let place: Place | undefined
const there = (): Place => {
  if (place === undefined) throw new Error('nothing is prepared')
  return place
}

function* pieces(): Generator<Uint8Array> {
  const piece = new Uint8Array(100_000)
  for (let sent = 0; sent < BYTES; sent += piece.length) yield piece
}

/** A command of the host. `input` and `onOutput` are its pipes, where they are given. */
async function runHere(
  [program = '', ...args]: readonly string[],
  pipes: {
    readonly input?: Iterable<Uint8Array>
    readonly onOutput?: (bytes: number) => void
    readonly cwd?: string
  } = {},
): Promise<void> {
  const stdio: StdioOptions = [pipes.input ? 'pipe' : 'ignore', pipes.onOutput ? 'pipe' : 'ignore', 'inherit']
  const child = spawn(program, args, { cwd: pipes.cwd ?? there().here, env, stdio })
  child.stdout?.on('data', (bytes: Uint8Array) => pipes.onOutput?.(bytes.length))
  const closed = once(child, 'close')
  if (child.stdin !== null && pipes.input !== undefined) await pipeline(Readable.from(pipes.input), child.stdin)
  const [code] = await closed
  if (code !== 0) throw new Error(`${program} ended with ${String(code)} on the host`)
}

/** The same in the VM. */
async function runThere(argv: readonly string[], pipes: Parameters<typeof runHere>[1] = {}): Promise<void> {
  const { exitCode, stderr } = await there().vm.exec({
    argv,
    env: { GIT_CONFIG_GLOBAL: env.GIT_CONFIG_GLOBAL, GIT_CONFIG_SYSTEM: env.GIT_CONFIG_SYSTEM },
    maxOutputBytes: 1000,
    ...(pipes.input === undefined ? {} : { stdin: Readable.from(pipes.input) }),
    ...(pipes.onOutput === undefined ? {} : { onOutput: (_, bytes) => pipes.onOutput?.(bytes.length) }),
  })
  if (exitCode !== 0) throw new Error(`${argv[0]} ended with ${exitCode} in the VM: ${Buffer.from(stderr).toString()}`)
}

/** A repository with a clean state, seen by the one who will ask for it: an index holds what files looked like to its writer. */
async function makeRepository(folder: string, run: typeof runHere): Promise<void> {
  for (let index = 0; index < FILES; index++) {
    const parent = join(folder, `folder-${index % 20}`)
    await mkdir(parent, { recursive: true })
    await writeFile(join(parent, `file-${index}`), `${index}\n`.repeat(50))
  }
  await writeFile(join(folder, 'hello.c'), '#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n')
  const author = ['-c', 'user.name=bench', '-c', 'user.email=bench@example.org']
  await run(['git', 'init', '-q'])
  await run(['git', 'add', '-A'])
  await run(['git', ...author, 'commit', '-qm', 'all'])
  await run(['git', 'status'])
}

async function prepare(): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), 'bv-'))
  process.once('beforeExit', () => void rm(root, { recursive: true, force: true }))
  const [shared, here] = [join(root, 'workspace'), join(root, 'here')]
  for (const folder of [shared, here]) await mkdir(folder)
  const vm = createMicroVm(
    {
      name: 'bench',
      stateDir: join(root, 'state'),
      image: { ref: 'debian:trixie-slim', packages: ['gcc', 'git', 'libc6-dev', 'nodejs'] },
      cpus: 2,
      memoryMiB: 1024,
      diskMiB: 4096,
      mounts: [{ host: shared, guest: '/workspace' }],
      workdir: '/workspace',
      env: {},
      egress: { kind: 'none' },
      bootstrap: [],
      idleStopMs: 10_000,
    },
    { cacheDir, runtimeDir: join(root, 'run') },
    { backend: 'qemu' },
  )
  place = { vm, shared, here }
  await vm.start()
  await makeRepository(here, runHere)
  await makeRepository(shared, runThere)
}

/** The same command in a VM and on the host. */
const both = (name: string, argv: readonly string[]): Comparison => ({
  name,
  peer: 'the same on the host',
  ours: () => runThere(argv),
  theirs: () => runHere(argv),
})

const counted = async (work: (onOutput: (bytes: number) => void) => Promise<void>): Promise<void> => {
  let bytes = 0
  await work((length) => (bytes += length))
  if (bytes !== BYTES) throw new Error(`${bytes} bytes came of ${BYTES}`)
}

/** What an agent does all day, in a VM against the same on the host. */
export const comparisons: readonly Comparison[] = [
  {
    name: '100 MB out of a command',
    peer: 'a pipe on the host',
    prepare,
    ours: () => counted((onOutput) => runThere(['head', '-c', String(BYTES), '/dev/zero'], { onOutput })),
    theirs: () => counted((onOutput) => runHere(['head', '-c', String(BYTES), '/dev/zero'], { onOutput })),
  },
  {
    name: '100 MB into a command',
    peer: 'a pipe on the host',
    ours: () => runThere(['wc', '-c'], { input: pieces() }),
    theirs: () => runHere(['wc', '-c'], { input: pieces() }),
  },
  both('`git status` over 2,000 files in the workspace', ['git', 'status']),
  both('compiling a C program', ['gcc', '-O1', '-o', 'hello', 'hello.c']),
  both("start of the image's Node", ['node', '-e', '0']),
]
