import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/**
 * A disk whose power can be cut at any instant, replayed from the system calls of a process (`strace -f -y -xx`). What was written
 * and not yet synced may be there or not, block by block; a name that was made, removed or renamed may be known or not until its folder
 * was synced. A rename is all or nothing, as every file system with a journal has it.
 */

/** The system calls that a disk needs to see. */
export const tracedCalls = [
  'openat',
  'open',
  'write',
  'pwrite64',
  'ftruncate',
  'fsync',
  'fdatasync',
  'close',
  'rename',
  'renameat2',
  'unlink',
  'unlinkat',
  'mkdir',
  'rmdir',
].join(',')

const blockBytes = 4096

type FileOp =
  | { readonly what: 'write'; readonly at: number; readonly bytes: Buffer }
  | { readonly what: 'cut'; readonly to: number }

type File = { readonly what: 'file'; bytes: Buffer; now: Buffer; pending: FileOp[] }
type Folder = {
  readonly what: 'folder'
  durable: Map<string, Thing>
  readonly now: Map<string, Thing>
  pending: NameOp[]
}
type Thing = File | Folder
type NameOp = { readonly link?: readonly [string, Thing]; readonly unlink?: string }

const newFile = (): File => ({ what: 'file', bytes: Buffer.alloc(0), now: Buffer.alloc(0), pending: [] })
const newFolder = (): Folder => ({ what: 'folder', durable: new Map(), now: new Map(), pending: [] })

function apply(bytes: Buffer, op: FileOp): Buffer {
  if (op.what === 'cut') {
    const cut = Buffer.alloc(op.to)
    bytes.copy(cut, 0, 0, Math.min(op.to, bytes.length))
    return cut
  }
  const end = op.at + op.bytes.length
  const grown = end <= bytes.length ? Buffer.from(bytes) : Buffer.concat([bytes, Buffer.alloc(end - bytes.length)])
  op.bytes.copy(grown, op.at)
  return grown
}

function applyName(names: Map<string, Thing>, op: NameOp): void {
  if (op.unlink !== undefined) names.delete(op.unlink)
  if (op.link !== undefined) names.set(...op.link)
}

/** One system call that succeeded. */
export type Call = {
  readonly name: string
  readonly args: readonly string[]
  readonly result: number
  readonly opened?: string
}

/** The calls of a trace in the order in which they ended; failed ones are left out. */
export function* parseTrace(text: string): Generator<Call, void, undefined> {
  const begun = new Map<string, string>()
  for (const line of text.split('\n')) {
    const [, pid = '', rest = ''] = /^(\d+)\s+(.*)$/.exec(line) ?? []
    const unfinished = /^(.*) <unfinished \.\.\.>$/.exec(rest)
    if (unfinished !== null) {
      begun.set(pid, unfinished[1] ?? '')
      continue
    }
    const resumed = /^<\.\.\. \w+ resumed>(.*)$/.exec(rest)
    const whole = resumed === null ? rest : `${begun.get(pid) ?? ''}${resumed[1] ?? ''}`
    const [, name = '', args = '', result = '', opened] = /^(\w+)\((.*)\)\s+= (-?\d+)(?:<([^>]*)>)?/.exec(whole) ?? []
    if (name === '' || result.startsWith('-')) continue
    yield {
      name,
      args: args.split(', '),
      result: Number(result),
      ...(opened === undefined ? {} : { opened: unhex(opened).toString() }),
    }
  }
}

const unhex = (text: string): Buffer => Buffer.from(text.replace(/^"|"$/g, '').replaceAll('\\x', ''), 'hex')

/** `18<\x2f…>` as its number and its path. */
function descriptor(text: string | undefined): { readonly fd: number; readonly path: string } {
  const [, fd = '-1', path = ''] = /^(\d+)<([^>]*)>/.exec(text ?? '') ?? []
  return { fd: Number(fd), path: unhex(path).toString() }
}

/** The files below one folder, as they are and as they would be after a power cut. */
export class Disk {
  readonly #top: string
  readonly #root = newFolder()
  readonly #positions = new Map<number, number>()
  readonly #handles = new Map<number, Thing>()

  /** @param top the folder that is watched; it is there and empty, and durable. */
  constructor(top: string) {
    this.#top = top
  }

  /** Lets a call happen. Gives what it wrote to standard output. */
  run(call: Call): string {
    switch (call.name) {
      case 'open':
      case 'openat':
        this.#open(call)
        return ''
      case 'write':
      case 'pwrite64':
        return this.#write(call)
      case 'ftruncate': {
        const file = this.#handles.get(descriptor(call.args[0]).fd)
        if (file?.what === 'file') this.#change(file, { what: 'cut', to: Number(call.args[1]) })
        return ''
      }
      case 'fsync':
      case 'fdatasync': {
        const thing = this.#handles.get(descriptor(call.args[0]).fd)
        if (thing !== undefined) sync(thing)
        return ''
      }
      case 'close':
        this.#handles.delete(descriptor(call.args[0]).fd)
        return ''
      case 'rename':
        this.#rename(unhex(call.args[0] ?? '').toString(), unhex(call.args[1] ?? '').toString())
        return ''
      case 'mkdir':
        this.#name(unhex(call.args[0] ?? '').toString(), (name) => ({ link: [name, newFolder()] }))
        return ''
      case 'unlink':
      case 'rmdir':
        this.#name(unhex(call.args[0] ?? '').toString(), (name) => ({ unlink: name }))
        return ''
      case 'unlinkat':
        this.#name(unhex(call.args[1] ?? '').toString(), (name) => ({ unlink: name }))
        return ''
      default:
        throw new Error(`the disk does not know the call ${call.name}`)
    }
  }

  #inside(path: string): readonly string[] | undefined {
    if (path === this.#top) return []
    return path.startsWith(`${this.#top}/`) ? path.slice(this.#top.length + 1).split('/') : undefined
  }

  #find(names: readonly string[]): Thing | undefined {
    let here: Thing | undefined = this.#root
    for (const name of names) here = here?.what === 'folder' ? here.now.get(name) : undefined
    return here
  }

  #name(path: string, make: (name: string) => NameOp): void {
    const names = this.#inside(path)
    const name = names?.at(-1)
    if (names === undefined || name === undefined) return
    const folder = this.#find(names.slice(0, -1))
    if (folder?.what !== 'folder') throw new Error(`the trace does not say where ${path} comes from`)
    const op = make(name)
    applyName(folder.now, op)
    folder.pending.push(op)
  }

  #open(call: Call): void {
    const names = this.#inside(call.opened ?? '')
    if (names === undefined) return
    const flags = call.args[2] ?? ''
    let thing = this.#find(names)
    if (thing === undefined) {
      thing = newFile()
      const made = thing
      this.#name(call.opened ?? '', (name) => ({ link: [name, made] }))
    } else if (thing.what === 'file' && flags.includes('O_TRUNC')) this.#change(thing, { what: 'cut', to: 0 })
    this.#handles.set(call.result, thing)
    this.#positions.set(call.result, flags.includes('O_APPEND') && thing.what === 'file' ? thing.now.length : 0)
  }

  #write(call: Call): string {
    const { fd, path } = descriptor(call.args[0])
    const bytes = unhex(call.args[1] ?? '').subarray(0, call.result)
    if (fd === 1) return bytes.toString()
    if (this.#inside(path) === undefined) return ''
    const file = this.#handles.get(fd)
    if (file?.what !== 'file') throw new Error(`the trace does not say what ${path} is`)
    const at = call.name === 'pwrite64' ? Number(call.args[3]) : (this.#positions.get(fd) ?? 0)
    if (call.name === 'write') this.#positions.set(fd, at + bytes.length)
    this.#change(file, { what: 'write', at, bytes })
    return ''
  }

  #rename(from: string, to: string): void {
    const source = this.#inside(from)
    const target = this.#inside(to)
    if (source === undefined || target === undefined) return
    const thing = this.#find(source)
    if (thing === undefined) throw new Error(`the trace does not say what ${from} is`)
    if (dirname(from) === dirname(to)) {
      this.#name(to, (name) => ({ unlink: source.at(-1) ?? '', link: [name, thing] }))
      return
    }
    // Between two folders: the new name may be durable without the loss of the old one, which harms nobody.
    this.#name(to, (name) => ({ link: [name, thing] }))
    this.#name(from, (name) => ({ unlink: name }))
  }

  #change(file: File, op: FileOp): void {
    file.now = apply(file.now, op)
    // Each block of a write reaches the disk by itself.
    if (op.what === 'cut') file.pending.push(op)
    else {
      for (let from = 0; from < op.bytes.length;) {
        const upTo = Math.min(op.bytes.length, (Math.floor((op.at + from) / blockBytes) + 1) * blockBytes - op.at)
        file.pending.push({ what: 'write', at: op.at + from, bytes: op.bytes.subarray(from, upTo) })
        from = upTo
      }
    }
  }

  /** How much is not yet durable. */
  get unsynced(): number {
    const count = (thing: Thing): number =>
      thing.pending.length +
      (thing.what === 'file' ? 0 : [...thing.now.values()].reduce((sum, at) => sum + count(at), 0))
    return count(this.#root)
  }

  /** Writes into `target` what is there after a power cut now; `keeps` says of each unsynced step whether it reached the disk. */
  cut(target: string, keeps: () => boolean): void {
    const write = (thing: Thing, path: string): void => {
      if (thing.what === 'file') {
        writeFileSync(path, thing.pending.filter(keeps).reduce(apply, thing.bytes))
        return
      }
      mkdirSync(path, { recursive: true })
      const names = new Map(thing.durable)
      for (const op of thing.pending.filter(keeps)) applyName(names, op)
      for (const [name, child] of names) write(child, join(path, name))
    }
    write(this.#root, target)
  }
}

function sync(thing: Thing): void {
  if (thing.what === 'file') thing.bytes = thing.now
  else thing.durable = new Map(thing.now)
  thing.pending = []
}
