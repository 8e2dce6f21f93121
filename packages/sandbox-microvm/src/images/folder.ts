import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lstat, open, readdir, readlink, realpath } from 'node:fs/promises'
import { codeOf } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import type { RootTree } from './root-tree.ts'
import type { Content, Spool } from './spool.ts'
import type { TarEntry } from './tar.ts'

const FOLDER_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
const FILE_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
const CHUNK_BYTES = 256 * 1024
const MAX_DEPTH = 200

/** One name of a folder on the host, found without following any link. */
type Found = {
  readonly entry: TarEntry
  /** The same for two names of one file. */
  readonly file: string
  readonly links: number
  /** Opens a regular file; undefined when it is none any more. */
  readonly open: () => Promise<FileHandle>
}

/**
 * Walks a root folder. Each folder is opened without following links and its names are looked up in it, so that nobody
 * who may write there leads it elsewhere; what is mounted in it stays out, and so do sockets.
 *
 * @throws MicroVmError `image_failed` for what cannot be read.
 */
async function walk(root: string, visit: (found: Found) => Promise<void>): Promise<void> {
  // A link here is the choice of whoever names the folder.
  const top = await folderAt(root, await readable(root, root, realpath(root)), root)
  const { dev } = await top.stat()
  const inFolder = async (folder: FileHandle, prefix: string, depth: number): Promise<void> => {
    if (depth > MAX_DEPTH)
      throw new MicroVmError('image_failed', `${root} has more than ${MAX_DEPTH} folders in each other`)
    const below = (name: Buffer): Buffer => Buffer.concat([Buffer.from(`/proc/self/fd/${folder.fd}/`), name])
    const names = await readdir(`/proc/self/fd/${folder.fd}`, { encoding: 'buffer' })
    for (const name of names.toSorted((a, b) => Buffer.compare(a, b))) {
      const path = `${prefix}${name.toString('latin1')}`
      const at = below(name)
      const stats = await readable(root, path, lstat(at, { bigint: true }))
      const kind = kindOf(stats)
      if (kind === undefined) continue
      const entry: TarEntry = {
        path,
        kind,
        mode: Number(stats.mode) & 0o7777,
        uid: ownerOf(Number(stats.uid), process.getuid?.()),
        gid: ownerOf(Number(stats.gid), process.getgid?.()),
        mtime: Number(stats.mtimeNs) / 1e9,
        target:
          kind === 'symlink'
            ? (await readable(root, path, readlink(at, { encoding: 'buffer' }))).toString('latin1')
            : '',
        size: Number(stats.size),
        stored: 0,
        at: 0,
        devMajor: Number(((stats.rdev >> 8n) & 0xfffn) | ((stats.rdev >> 32n) & ~0xfffn)),
        devMinor: Number((stats.rdev & 0xffn) | ((stats.rdev >> 12n) & 0xffffff00n)),
        xattrs: new Map(),
      }
      await visit({
        entry,
        file: String(stats.ino),
        links: Number(stats.nlink),
        open: () => readable(root, path, open(at, FILE_FLAGS)),
      })
      if (kind !== 'folder') continue
      await using child = await folderAt(root, at, path)
      if ((await child.stat()).dev === dev) await inFolder(child, `${path}/`, depth + 1)
    }
  }
  try {
    await inFolder(top, '', 1)
  } finally {
    await top.close()
  }
}

const folderAt = (root: string, at: string | Buffer, path: string): Promise<FileHandle> =>
  readable(root, path, open(at, FOLDER_FLAGS))

async function readable<T>(root: string, path: string, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    const code = codeOf(error)
    if (code === undefined) throw error
    throw new MicroVmError(
      'image_failed',
      path === root
        ? `the root folder ${root} cannot be read (${code})`
        : `${path} of the root folder ${root} cannot be read (${code}); make an archive of it as its owner and use tar:/root.tar`,
      { cause: error },
    )
  }
}

function kindOf(stats: {
  isFile(): boolean
  isDirectory(): boolean
  isSymbolicLink(): boolean
  isCharacterDevice(): boolean
  isBlockDevice(): boolean
  isFIFO(): boolean
}): TarEntry['kind'] | undefined {
  if (stats.isFile()) return 'file'
  if (stats.isDirectory()) return 'folder'
  if (stats.isSymbolicLink()) return 'symlink'
  if (stats.isCharacterDevice()) return 'char'
  if (stats.isBlockDevice()) return 'block'
  return stats.isFIFO() ? 'fifo' : undefined
}

/** What belongs to whoever runs this belongs to root in the guest: nobody without root could unpack it otherwise. */
const ownerOf = (id: number, own: number | undefined): number => (id === own ? 0 : id)

/** What tells one state of a root folder from another, without reading its files. */
export async function folderStamp(root: string): Promise<string> {
  const hash = createHash('sha256')
  await walk(root, async ({ entry, file }) => {
    hash.update(
      JSON.stringify([
        entry.path,
        entry.kind,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.mtime,
        entry.size,
        entry.target,
        file,
      ]),
    )
  })
  return hash.digest('hex')
}

/** Puts a root folder into the tree, as one layer. Extended attributes cannot be read here and are left out. */
export async function applyFolder(
  root: string,
  { tree, spool, signal }: { readonly tree: RootTree; readonly spool: Spool; readonly signal?: AbortSignal },
): Promise<void> {
  tree.beginLayer()
  const known = new Map<string, string>()
  await walk(root, async ({ entry, file, links, open: openFile }) => {
    if (signal?.aborted === true) throw new MicroVmError('aborted', 'the start was cancelled')
    if (entry.path.split('/').at(-1)?.startsWith('.wh.') === true)
      throw new MicroVmError('image_failed', `${entry.path} of the root folder has a name that layers cannot hold`)
    const first = links > 1 && entry.kind === 'file' ? known.get(file) : undefined
    if (first !== undefined) return tree.put({ ...entry, kind: 'link', target: first }, undefined)
    known.set(file, entry.path)
    return tree.put(entry, entry.kind === 'file' ? await contentOf(entry.path, await openFile(), spool) : undefined)
  })
}

async function contentOf(path: string, opened: FileHandle, spool: Spool): Promise<Content> {
  await using file = opened
  if (!(await file.stat()).isFile())
    throw new MicroVmError('image_failed', `${path} of the root folder was changed while it was read`)
  const buffer = Buffer.alloc(CHUNK_BYTES)
  let at = 0
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at)
    if (bytesRead === 0) return spool.end(at)
    await spool.write(at, buffer.subarray(0, bytesRead))
    at += bytesRead
  }
}
