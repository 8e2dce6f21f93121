import { createHash } from 'node:crypto'
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { writeFileAtomic } from '@reve/base'
import { buildOnce } from '../cache-folder.ts'
import { MicroVmError } from '../errors.ts'
import { runHost } from '../host-process.ts'
import { type AptHost, openApt } from './apt.ts'
import { writeCpio } from './cpio.ts'
import { collectModules, NEEDED_MODULES } from './modules.ts'

/** What a VM boots: paths of a kernel and of an initial file system that holds the guest agent. */
export type Kernel = { readonly version: string; readonly vmlinux: string; readonly initrd: string }

/** Debian's name for the current kernel; the smaller cloud kernel has no 9p. */
const META_PACKAGE = 'linux-image-amd64'
/** Raised when what a kernel folder holds changes. */
const RECIPE = 2
/** Raised when what an initial file system holds changes. */
const LAYOUT = 3
/** The agent loads it last, and gives it no disk until it is told to; no other module needs it. */
const DISK_MODULE = 'virtio_blk.ko'

/** What the name of a kernel's folder ends with. */
const SUFFIX = `-r${RECIPE}`

/** The newest kernel in the cache, with an initial file system for this agent. */
export async function findKernel(cacheDir: string, agent: Uint8Array): Promise<Kernel | undefined> {
  const parent = join(cacheDir, 'kernels')
  await mkdir(parent, { recursive: true, mode: 0o700 })
  const newest = (await readdir(parent))
    .filter((name) => !name.startsWith('.') && name.endsWith(SUFFIX))
    .toSorted()
    .at(-1)
  if (newest === undefined) return undefined
  const folder = join(parent, newest)
  return {
    version: newest.slice(0, -SUFFIX.length),
    vmlinux: join(folder, 'vmlinux'),
    initrd: await ensureInitrd(folder, agent),
  }
}

/** The kernel in the cache, or a new one from the Debian packages that this host's apt knows. Unpacked, never installed. */
export async function ensureKernel(
  host: AptHost & { readonly cacheDir: string; readonly agent: Uint8Array },
): Promise<Kernel> {
  const parent = join(host.cacheDir, 'kernels')
  return buildOnce({
    lock: join(parent, 'lock'),
    find: () => findKernel(host.cacheDir, host.agent),
    build: async (temporary) => join(parent, `${await unpackKernel(host, temporary)}${SUFFIX}`),
    ...(host.signal === undefined ? {} : { signal: host.signal }),
  })
}

/** The agent is in the initial file system's name: a new agent makes a new one, an old one stays for those who run it. */
async function ensureInitrd(folder: string, agent: Uint8Array): Promise<string> {
  const hash = createHash('sha256').update(`layout ${LAYOUT}`).update(agent).digest('hex').slice(0, 16)
  const path = join(folder, `initrd-${hash}.cpio`)
  if ((await readdir(folder)).includes(path.slice(folder.length + 1))) return path
  const names = (await readFile(join(folder, 'modules', 'order'), 'utf8')).split('\n').filter((line) => line !== '')
  const modules = await Promise.all(
    names.map(async (name) => ({ path: `lib/${name}`, data: await readFile(join(folder, 'modules', name)) })),
  )
  const listOf = (files: readonly string[]): Uint8Array => Buffer.from(files.map((name) => `/lib/${name}\n`).join(''))
  const archive = writeCpio([
    ...['dev', 'proc', 'sys', 'run', 'root', 'lib'].map((path) => ({ path })),
    { path: 'modules', data: listOf(names.filter((name) => name !== DISK_MODULE)), mode: 0o644 },
    { path: 'modules-of-the-disk', data: listOf(names.filter((name) => name === DISK_MODULE)), mode: 0o644 },
    ...modules.map((module) => ({ ...module, mode: 0o644 })),
    { path: 'init', data: agent },
  ])
  await writeFileAtomic(path, archive, { fsync: false })
  return path
}

async function unpackKernel(host: AptHost, temporary: string): Promise<string> {
  const options = {
    searchPath: host.searchPath,
    env: host.programEnv,
    ...(host.signal === undefined ? {} : { signal: host.signal }),
  }
  const failed = (what: string, stderr: string): MicroVmError =>
    new MicroVmError(
      'image_failed',
      `the guest's kernel could not be prepared: ${what}: ${stderr.trim().split('\n').slice(-3).join(' ')}`,
    )
  const lists = join(temporary, 'apt')
  const apt = await openApt(lists, host)
  const meta = await apt.run('apt-cache', ['depends', META_PACKAGE])
  const name = /Depends: (linux-image-[\w.+-]+)/.exec(meta.stdout.toString())?.[1]
  if (name === undefined)
    throw failed(`apt knows no package ${META_PACKAGE}; is a Debian mirror in this machine's apt sources?`, meta.stderr)
  const download = await apt.run('apt-get', ['download', name], temporary)
  const archive = (await readdir(temporary)).find((file) => file.endsWith('.deb'))
  if (download.code !== 0 || archive === undefined) throw failed(`downloading ${name}`, download.stderr)
  const root = join(temporary, 'root')
  const unpacked = await runHost('dpkg-deb', ['-x', join(temporary, archive), root], options)
  if (unpacked.code !== 0) throw failed(`unpacking ${archive}`, unpacked.stderr)

  const release = name.slice('linux-image-'.length)
  const unxz = async (bytes: Uint8Array): Promise<Uint8Array> => {
    const run = await runHost('xz', ['-dc', '--single-stream'], { ...options, input: bytes })
    if (run.stdout.length === 0) throw failed('xz', run.stderr)
    return run.stdout
  }
  // From 6.12 on Debian's modules are under /usr.
  const libraries = (await readdir(root)).includes('lib') ? join(root, 'lib') : join(root, 'usr', 'lib')
  const modules = await collectModules(join(libraries, 'modules', release), NEEDED_MODULES, unxz)
  await mkdir(join(temporary, 'modules'))
  for (const module of modules) await writeFile(join(temporary, 'modules', module.file), module.data)
  await writeFile(join(temporary, 'modules', 'order'), modules.map((module) => `${module.file}\n`).join(''))
  const compressed = join(root, 'boot', `vmlinuz-${release}`)
  const payload = xzPayload(await readFile(compressed))
  if (payload === undefined) await copyFile(compressed, join(temporary, 'vmlinux'))
  else await writeFile(join(temporary, 'vmlinux'), await unxz(payload))
  for (const left of [root, join(temporary, archive), lists]) await rm(left, { recursive: true, force: true })
  return archive.replace(/_amd64\.deb$/, '')
}

/** The compressed kernel inside of a bzImage, if it is xz; a kernel that is unpacked here boots half a second faster. */
export function xzPayload(image: Buffer): Buffer | undefined {
  if (image.length < 0x260 || image.toString('latin1', 0x202, 0x206) !== 'HdrS') return undefined
  const start = (image.readUInt8(0x1f1) + 1) * 512 + image.readUInt32LE(0x248)
  // The last four bytes are the unpacked size.
  const payload = image.subarray(start, start + image.readUInt32LE(0x24c) - 4)
  return payload.subarray(0, 6).equals(Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00])) ? payload : undefined
}
