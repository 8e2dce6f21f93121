import type { Content } from './spool.ts'
import { badArchive } from './tar-header.ts'
import type { TarEntry } from './tar.ts'

/** What a name in a file system stands for. Names are latin1: one character for each byte. */
export type Node = FolderNode | FileNode | SymlinkNode | SpecialNode

type Common = {
  mode: number
  uid: number
  gid: number
  /** Seconds since 1970, with a fraction. */
  mtime: number
  xattrs: ReadonlyMap<string, Buffer>
}
/** `layer` is the last one that put it here, or something into it. */
export type Child = { readonly node: Node; layer: number }
export type FolderNode = Common & { readonly kind: 'folder'; readonly children: Map<string, Child> }
/** Several names may stand for one file. */
export type FileNode = Common & { readonly kind: 'file'; readonly content: Content }
export type SymlinkNode = Common & { readonly kind: 'symlink'; readonly target: string }
export type SpecialNode = Common & {
  readonly kind: 'char' | 'block' | 'fifo'
  readonly devMajor: number
  readonly devMinor: number
}

const NO_XATTRS: ReadonlyMap<string, Buffer> = new Map()
const MAX_LINKS = 40
const MAX_DEPTH = 1000
const MAX_NAME = 255
const WHITEOUT = '.wh.'
const OPAQUE = '.wh..wh..opq'

/** What a file or folder gets when an archive does not mention it. */
const plain = (mode: number): Common => ({ mode, uid: 0, gid: 0, mtime: 0, xattrs: NO_XATTRS })

/**
 * The file system of an image, as names in memory. Layers are merged here and nowhere else: no archive ever puts a file
 * onto the host, so there is nothing of the host that a hostile one could reach. A link is followed inside of the image
 * only, as a program in it would.
 */
export class RootTree {
  readonly root: FolderNode = { kind: 'folder', children: new Map(), ...plain(0o755) }
  readonly #maxNodes: number
  #layer = 0
  #added = 0

  constructor(maxNodes: number) {
    this.#maxNodes = maxNodes
  }

  /** What is put from now on lies above everything before. */
  beginLayer(): void {
    this.#layer += 1
  }

  /**
   * Puts one member of a layer. Its contents are known by then; a whiteout removes what lower layers have.
   *
   * @throws MicroVmError `image_failed` for names and links that lead nowhere.
   */
  put(entry: TarEntry, content: Content | undefined): void {
    const parts = split(entry.path)
    const name = parts.pop()
    if (name === undefined) {
      if (entry.kind !== 'folder') throw badArchive('its root is not a folder')
      Object.assign(this.root, metadata(entry))
      return
    }
    // No file lies below a mark; an old union file system kept its own things there.
    if (parts.some((part) => part.startsWith(WHITEOUT))) return
    if (name.startsWith(WHITEOUT)) return this.#whiteout(parts, name)
    const folder = this.#folder(parts, true)
    if (folder === undefined) throw badArchive(`"${entry.path}" has no folder`)
    const before = folder.children.get(name)
    if (entry.kind === 'folder' && before?.node.kind === 'folder') {
      Object.assign(before.node, metadata(entry))
      before.layer = this.#layer
    } else this.#add(folder, name, this.#node(entry, content))
  }

  #node(entry: TarEntry, content: Content | undefined): Node {
    const common = metadata(entry)
    switch (entry.kind) {
      case 'folder':
        return { kind: 'folder', children: new Map(), ...common }
      case 'file':
        return { kind: 'file', content: content ?? { size: 0, runs: [] }, ...common }
      case 'symlink':
        if (entry.target === '') throw badArchive(`"${entry.path}" is a link to nothing`)
        return { kind: 'symlink', target: entry.target, ...common }
      case 'link': {
        const parts = split(entry.target)
        const last = parts.pop()
        const target = last === undefined ? undefined : this.#folder(parts, false)?.children.get(last)?.node
        if (target === undefined || target.kind === 'folder')
          throw badArchive(`"${entry.path}" is a hard link to "${entry.target}", which is not a file of the image`)
        return target
      }
      case 'char':
      case 'block':
      case 'fifo':
        return { kind: entry.kind, devMajor: entry.devMajor, devMinor: entry.devMinor, ...common }
      default:
        return entry.kind satisfies never
    }
  }

  #whiteout(parts: readonly string[], name: string): void {
    const folder = this.#folder(parts, false)
    if (folder === undefined) return
    if (name === OPAQUE) this.#removeLower(folder)
    // Others with the double mark are an old union file system's own.
    else if (!name.startsWith(`${WHITEOUT}${WHITEOUT}`)) {
      const hidden = name.slice(WHITEOUT.length)
      const child = folder.children.get(hidden)
      if (child === undefined) return
      if (child.layer < this.#layer) folder.children.delete(hidden)
      else if (child.node.kind === 'folder') this.#removeLower(child.node)
    }
  }

  /** Removes what lower layers have in it; what this layer put there before or will put there stays. */
  #removeLower(folder: FolderNode): void {
    for (const [name, child] of folder.children)
      if (child.layer < this.#layer) folder.children.delete(name)
      else if (child.node.kind === 'folder') this.#removeLower(child.node)
  }

  #add(folder: FolderNode, name: string, node: Node): Child {
    if (name.length > MAX_NAME) throw badArchive('a name of more than 255 bytes')
    this.#added += 1
    if (this.#added > this.#maxNodes) throw badArchive(`it has more than ${this.#maxNodes} files`)
    const child = { node, layer: this.#layer }
    folder.children.set(name, child)
    return child
  }

  /** The folder at a path, through links; with `make`, folders that are not there are made, and all are of this layer. */
  #folder(parts: readonly string[], make: boolean): FolderNode | undefined {
    const found = this.#walk(parts, make)
    if (found === undefined || found.kind === 'folder') return found
    if (make) throw badArchive(`"${parts.join('/')}" is a file, and something is put into it`)
    return undefined
  }

  #walk(parts: readonly string[], make: boolean): Node | undefined {
    const stack: FolderNode[] = [this.root]
    const todo = parts.toReversed()
    let links = 0
    for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
      const folder = stack.at(-1) ?? this.root
      if (name === '..') {
        if (stack.length > 1) stack.pop()
        continue
      }
      let child = folder.children.get(name)
      if (child === undefined && make)
        child = this.#add(folder, name, { kind: 'folder', children: new Map(), ...plain(0o755) })
      if (child === undefined) return undefined
      const { node } = child
      if (node.kind === 'symlink') {
        links += 1
        if (links > MAX_LINKS) {
          if (!make) return undefined
          throw badArchive(`"${parts.join('/')}" leads around in links`)
        }
        if (node.target.startsWith('/')) stack.length = 1
        todo.push(...components(node.target).toReversed())
        continue
      }
      if (node.kind !== 'folder') return todo.length === 0 ? node : undefined
      if (make) child.layer = this.#layer
      stack.push(node)
      if (stack.length > MAX_DEPTH) throw badArchive(`it has more than ${MAX_DEPTH} folders in each other`)
    }
    return stack.at(-1)
  }

  /** What a path leads to, through links. */
  find(path: string): Node | undefined {
    return this.#walk(components(path), false)
  }

  /** A folder that is there afterwards, with its parents. */
  makeFolder(path: string, mode = 0o755): FolderNode {
    const existed = this.find(path) !== undefined
    const folder = this.#folder(components(path), true)
    if (folder === undefined) throw badArchive(`"${path}" is not a folder`)
    if (!existed) folder.mode = mode
    return folder
  }

  /** A file in place of whatever has that name; no link is followed for its last part. */
  putFile(path: string, content: Content, mode = 0o644): void {
    const parts = components(path)
    const name = parts.pop() ?? ''
    this.#add(this.makeFolder(parts.join('/')), name, { kind: 'file', content, ...plain(mode) })
  }
}

const metadata = (entry: TarEntry): Common => ({
  mode: entry.mode,
  uid: entry.uid,
  gid: entry.gid,
  mtime: entry.mtime,
  xattrs: entry.xattrs,
})

const components = (path: string): string[] => path.split('/').filter((part) => part !== '' && part !== '.')

/** The parts of a member's name. @throws MicroVmError `image_failed` for one that leads out. */
function split(path: string): string[] {
  const parts = components(path)
  if (parts.includes('..')) throw badArchive(`"${path}" leads out of the image with ".."`)
  return parts
}
