import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { appendFile, chmod, mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { codeOf } from '@reve/base'
import * as v from 'valibot'
import { buildOnce, removeLeftovers } from '../cache-folder.ts'
import { MicroVmError } from '../errors.ts'
import { DEFAULT_SEARCH_PATH, findProgram, missingProgram, runHost } from '../host-process.ts'
import type { Progress } from '../progress.ts'
import { remembered } from '../remembered.ts'
import type { Accelerator, MicroVmHost } from '../spec.ts'
import { type Machine, type MemoryFile, qemuArguments } from './command-line.ts'
import type { Kernel } from './kernel.ts'
import { saveState } from './migration.ts'
import { startQemu } from './process.ts'
import type { Qmp } from './qmp.ts'

// <cache>/templates: lock, <key>/{memory, state, template.json, used}, <key>.failures

/**
 * A machine that was booted until its guest agent served and then saved: nothing is mounted in it, nothing of a disk was
 * read, nobody serves its network. A VM that starts goes on from there. Valid on this host, as long as it runs, for one QEMU,
 * kernel, agent and shape of the machine; never written to after it was saved.
 */
export type Template = {
  /** The guest's memory, sparse. */
  readonly memory: string
  /** The state of its devices. */
  readonly state: Uint8Array
  /** Version of the QEMU that saved it, which alone goes on from it: a wrapper's file does not change with what it runs. */
  readonly qemu: string
}

/** What machines have to have in common to go on from one template. */
export type Shape = {
  readonly accelerator: Accelerator
  readonly cpus: number
  readonly memoryMiB: number
  /** How many folders are shared; which ones is only said when it starts. */
  readonly shares: number
  /** How its network is set up, if it has one; who serves it is only said when it starts. */
  readonly network: Uint8Array | undefined
}

/** What it takes to make one. */
export type TemplateParts = {
  readonly host: MicroVmHost
  readonly kernel: Kernel
  readonly shape: Shape
  readonly box: boolean
  /** For the sockets of the machine that is saved. */
  readonly socketDir: string
  /** Where a VM's own memory may lie; best in the host's memory too. */
  readonly memoryFile: string
  readonly progress: Progress
  readonly now: () => number
  readonly bootMs: number
  readonly signal: AbortSignal
}

/** Raised when what a template holds changes in a way that its key does not know of. */
const LAYOUT = 1
/** So often a template may fail on one host before it is left alone until that boots again. */
export const FAILURES = 3
/** How many are kept, the last used; each is of about 100 MB. */
const KEPT = 6
const KEPT_MS = 7 * 24 * 3_600_000

const Seal = v.object({ bytes: v.number(), mtimeMs: v.number(), ctimeMs: v.number() })
const Description = v.object({
  version: v.literal(LAYOUT),
  qemu: v.string(),
  /** A file that was written to after it was sealed is another one. */
  memory: Seal,
  state: v.object({ sha256: v.string() }),
})
type Description = v.InferOutput<typeof Description>

const folderOf = (host: MicroVmHost): string => join(host.cacheDir, 'templates')
const failuresFile = (host: MicroVmHost, key: string): string => join(folderOf(host), `${key}.failures`)

/**
 * The template of that key, made when there is none: its memory is then at `memoryFile` as well, for the VM that asked.
 *
 * @throws MicroVmError `boot_failed`, `image_failed`, `missing_program`, `aborted`: the caller boots without one.
 */
export async function ensureTemplate(
  key: string,
  parts: TemplateParts,
): Promise<{ readonly template: Template; readonly isNew: boolean }> {
  const { host, signal } = parts
  const folder = join(folderOf(host), key)
  let isNew = false
  const template = await buildOnce({
    lock: join(folderOf(host), 'lock'),
    find: () => findTemplate(folder),
    build: (temporary) =>
      parts.progress.stage('template', 'save a booted machine for later starts', async (say) => {
        await makeTemplate(temporary, parts)
        // One that is there and was not found is damaged.
        await discard(folder)
        const { blocks } = await stat(join(temporary, 'memory'))
        say(`${Math.round((blocks * 512) / 1e6)} MB were saved`)
        isNew = true
        return folder
      }),
    signal,
  })
  const used = new Date(parts.now())
  await utimes(join(folder, 'used'), used, used)
  return { template, isNew }
}

/** Notes that a VM did not come up with a template, and removes it. */
export async function dropTemplate(host: MicroVmHost, key: string): Promise<void> {
  await mkdir(folderOf(host), { recursive: true, mode: 0o700 })
  await appendFile(failuresFile(host, key), 'x', { mode: 0o600 })
  await discard(join(folderOf(host), key))
}

/** Out of sight in one step: nobody finds half of it, nor takes what comes in its place for it. */
async function discard(path: string): Promise<void> {
  const removing = join(dirname(path), `.removing-${basename(path)}`)
  await rm(removing, { recursive: true, force: true })
  try {
    await rename(path, removing)
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
  }
  await rm(removing, { recursive: true, force: true })
}

/**
 * The memory of a VM that starts from `template`: the template's own, or a copy at `memoryFile`.
 *
 * @throws MicroVmError `image_failed`, `missing_program`, `aborted`.
 */
export async function memoryOf(template: Template, parts: TemplateParts): Promise<MemoryFile> {
  if (canShare(template.qemu)) return { path: template.memory, use: 'shared' }
  await copyMemory(template.memory, parts.memoryFile, parts)
  return { path: parts.memoryFile, use: 'private' }
}

async function copyMemory(from: string, to: string, { host, signal }: TemplateParts): Promise<void> {
  await writeFile(to, '', { mode: 0o600 })
  const searchPath = host.searchPath ?? DEFAULT_SEARCH_PATH
  const copied = await runHost('cp', ['--reflink=auto', '--sparse=auto', '--', from, to], { searchPath, signal })
  if (copied.code !== 0)
    throw new MicroVmError('image_failed', `the memory could not be copied: ${copied.stderr.trim()}`)
}

/** Removes templates that were not used for a week, all but the last used ones, and what killed savers left. */
export async function removeStaleTemplates(host: MicroVmHost, now: number): Promise<void> {
  const parent = folderOf(host)
  const names = await readdir(parent).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return []
    throw error
  })
  if (names.length === 0) return
  await removeLeftovers(parent)
  const aged = await Promise.all(
    names
      .filter((name) => !name.startsWith('.') && !name.startsWith('lock'))
      .map(async (name) => {
        const path = join(parent, name)
        const found =
          (await stat(join(path, 'used')).catch(() => undefined)) ?? (await stat(path).catch(() => undefined))
        return { path, isFolder: !name.includes('.'), usedMs: found?.mtimeMs ?? 0 }
      }),
  )
  const folders = aged.filter(({ isFolder }) => isFolder).toSorted((a, b) => b.usedMs - a.usedMs)
  const old = aged.filter(({ usedMs }) => now - usedMs > KEPT_MS)
  for (const { path } of new Set([...folders.slice(KEPT), ...old])) await discard(path)
}

const identity = async (path: string): Promise<readonly unknown[]> => {
  const { size, ino, mtimeMs, ctimeMs } = await stat(path)
  return [path, size, ino, mtimeMs, ctimeMs]
}

/** Names everything that a template depends on: the host and its boot, QEMU's bytes, kernel, agent, and the command line. */
export async function templateKey({
  host,
  kernel,
  shape,
}: Pick<TemplateParts, 'host' | 'kernel' | 'shape'>): Promise<string> {
  const qemu = findProgram('qemu-system-x86_64', host.searchPath)
  if (qemu === undefined) throw missingProgram('qemu-system-x86_64')
  const binary = await remembered({
    cacheDir: host.cacheDir,
    key: ['sha256', ...(await identity(qemu))],
    schema: v.string(),
    find: async () => {
      const hash = createHash('sha256')
      await pipeline(createReadStream(qemu), hash)
      return hash.digest('hex')
    },
  })
  // An accelerator's processor, and the rate of its clock, are the host's own; a host may be another after it was off.
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
  const machine = qemuArguments(savedMachine(kernel, shape, '', ''))
  const files = [await identity(kernel.vmlinux), await identity(kernel.initrd)]
  const all = [LAYOUT, hostname(), boot, binary, files, machine, Buffer.from(shape.network ?? []).toString('hex')]
  return createHash('sha256').update(JSON.stringify(all)).digest('hex').slice(0, 32)
}

const savedMachine = (kernel: Kernel, shape: Shape, memory: string, empty: string): Machine => ({
  name: 'reve-template',
  accelerator: shape.accelerator,
  cpus: shape.cpus,
  memoryMiB: shape.memoryMiB,
  vmlinux: kernel.vmlinux,
  initrd: kernel.initrd,
  agentSocket: '',
  qmpSocket: '',
  disk: 'placeholder',
  memory: { path: memory, use: 'save' },
  shares: Array.from({ length: shape.shares }, (_, index) => ({ tag: `share${index}`, path: empty, readonly: true })),
})

async function makeTemplate(folder: string, parts: TemplateParts): Promise<void> {
  const { kernel, shape, socketDir, memoryFile, now, box, signal, bootMs } = parts
  const [memory, state, empty] = [join(folder, 'memory'), join(folder, 'state'), join(folder, 'empty')]
  await mkdir(empty, { mode: 0o700 })
  await writeFile(memoryFile, '', { mode: 0o600 })
  const vm = await startQemu({
    machine: savedMachine(kernel, shape, memoryFile, empty),
    socketDir,
    searchPath: parts.host.searchPath ?? DEFAULT_SEARCH_PATH,
    onLost: () => undefined,
    begin: async (guest) => (shape.network === undefined ? undefined : guest.setUpNetwork(shape.network)),
    box,
    now,
    signal,
    bootMs,
  })
  let saved: Uint8Array
  try {
    saved = await saveState(vm.control, join(socketDir, 'state'))
    await requireUnread(vm.control)
  } finally {
    await vm.quit()
  }
  await copyMemory(memoryFile, memory, parts)
  await writeFile(state, saved, { mode: 0o600 })
  for (const path of [memory, state]) await chmod(path, 0o400)
  const description: Description = {
    version: LAYOUT,
    qemu: await vm.control.version,
    memory: await sealOf(memory),
    state: { sha256: sha256(saved) },
  }
  await writeFile(join(folder, 'template.json'), JSON.stringify(description), { mode: 0o600 })
  await writeFile(join(folder, 'used'), '', { mode: 0o600 })
}

const Statistics = v.array(
  v.object({
    stats: v.object({ rd_operations: v.number(), wr_operations: v.number(), flush_operations: v.number() }),
  }),
)

/** A guest that has read of a disk would take the next one for the same: QEMU's own count has to say that none did. */
async function requireUnread(control: Qmp): Promise<void> {
  const disks = v.parse(Statistics, await control.execute('query-blockstats'))
  const touched = disks.filter(({ stats }) => stats.rd_operations + stats.wr_operations + stats.flush_operations > 0)
  if (disks.length !== 1 || touched.length > 0)
    throw new MicroVmError('boot_failed', 'this kernel reads its disk before it is told to, so it is not saved')
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

async function sealOf(path: string): Promise<v.InferOutput<typeof Seal>> {
  const { size, mtimeMs, ctimeMs } = await stat(path)
  return { bytes: size, mtimeMs, ctimeMs }
}

/** How often a template of that key has failed. */
export async function failuresOf(host: MicroVmHost, key: string): Promise<number> {
  try {
    return (await stat(failuresFile(host, key))).size
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 0
    throw error
  }
}

async function describe(folder: string): Promise<Description | undefined> {
  const text = await readFile(join(folder, 'template.json'), 'utf8').catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  })
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Description), text)
  return parsed.success ? parsed.output : undefined
}

/** A template that is whole and as it was when it was saved. */
async function findTemplate(folder: string): Promise<Template | undefined> {
  const description = await describe(folder)
  if (description === undefined) return undefined
  const memory = join(folder, 'memory')
  try {
    const { bytes, mtimeMs, ctimeMs } = await sealOf(memory)
    const sealed = description.memory
    const isSame = bytes === sealed.bytes && mtimeMs === sealed.mtimeMs && ctimeMs === sealed.ctimeMs
    const state = await readFile(join(folder, 'state'))
    if (!isSame || sha256(state) !== description.state.sha256) return undefined
    return { memory, state, qemu: description.qemu }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** From 8.2 on a file of memory may be opened for reading alone and the guest still writes, into memory of its own. */
export function canShare(qemu: string): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)\./.exec(qemu) ?? []
  return Number(major) > 8 || (Number(major) === 8 && Number(minor) >= 2)
}
