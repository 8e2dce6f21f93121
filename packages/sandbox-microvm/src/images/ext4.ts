import type { FileHandle } from 'node:fs/promises'
import { MicroVmError } from '../errors.ts'
import {
  DESCRIPTOR_BYTES,
  type DirectoryEntry,
  encodeAttributes,
  encodeDescriptor,
  encodeDevice,
  encodeDirectory,
  encodeExtents,
  encodeInode,
  encodeJournal,
  encodeShortLink,
  encodeSuperblock,
  type Extent,
  FIRST_INODE,
  INODE_BYTES,
  JOURNAL_INODE,
  MAX_EXTENT,
  ROOT_INODE,
} from './ext4-format.ts'
import type { FolderNode, Node } from './root-tree.ts'
import { BLOCK, type Run, type Spool, writeAll } from './spool.ts'

const BLOCKS_PER_GROUP = 8 * BLOCK
const INODES_PER_GROUP = 8192
const INODE_BLOCKS = (INODES_PER_GROUP * INODE_BYTES) / BLOCK
const DESCRIPTORS_PER_BLOCK = BLOCK / DESCRIPTOR_BYTES
const JOURNAL_BLOCKS = 8192
/** Left free in the image itself; a VM grows it to the size of its disk. */
const SPARE_BLOCKS = 1024
const SPARE_INODES = 1024
const MAX_FILE_BYTES = 2 ** 43

/**
 * Writes a root file system as an ext4 image: no root, no mount, no program of the host, and nothing unpacked, so that
 * owners, devices and attributes are as the archive says whoever runs this. The same tree gives the same bytes.
 *
 * @param uuid 16 bytes
 * @returns the bytes of the image; zeroes in it take no room on the disk.
 * @throws MicroVmError `image_failed`
 */
export async function writeExt4(root: FolderNode, spool: Spool, target: FileHandle, uuid: Buffer): Promise<number> {
  const inodes = numberInodes(root)
  // How many descriptors there are decides where everything lies, and is known for sure only at the end.
  for (let descriptorBlocks = 1; ; descriptorBlocks++) {
    const space = new Space(descriptorBlocks)
    const plan = planAll(inodes, space)
    const groups = Math.max(
      space.groups(SPARE_BLOCKS),
      Math.ceil((FIRST_INODE + inodes.size + SPARE_INODES) / INODES_PER_GROUP),
    )
    if (groups > descriptorBlocks * DESCRIPTORS_PER_BLOCK) continue
    await target.truncate(groups * BLOCKS_PER_GROUP * BLOCK)
    await write(plan, space, groups, spool, target, uuid)
    return groups * BLOCKS_PER_GROUP * BLOCK
  }
}

type Numbered = { readonly inode: number; links: number; readonly parent: number }

/** Gives each file its number; names are taken in order, so that the same tree gets the same numbers. */
function numberInodes(root: FolderNode): ReadonlyMap<Node, Numbered> {
  if (!root.children.has('lost+found'))
    root.children.set('lost+found', {
      node: { kind: 'folder', children: new Map(), mode: 0o700, uid: 0, gid: 0, mtime: 0, xattrs: new Map() },
      layer: 0,
    })
  const inodes = new Map<Node, Numbered>([[root, { inode: ROOT_INODE, links: 2, parent: ROOT_INODE }]])
  // Its number is reserved for it by custom.
  const first = root.children.get('lost+found')?.node
  let next = FIRST_INODE
  const number = (node: Node, parent: Numbered): void => {
    const known = inodes.get(node)
    if (known !== undefined) {
      known.links += 1
      return
    }
    const isFolder = node.kind === 'folder'
    if (isFolder) parent.links += 1
    inodes.set(node, { inode: next, links: isFolder ? 2 : 1, parent: parent.inode })
    next += 1
  }
  const todo: FolderNode[] = [root]
  for (let folder = todo.pop(); folder !== undefined; folder = todo.pop()) {
    const numbered = inodes.get(folder)
    if (numbered === undefined) continue
    if (folder === root && first !== undefined) number(first, numbered)
    for (const [name, { node }] of sortedChildren(folder)) {
      if (folder !== root || name !== 'lost+found') number(node, numbered)
      if (node.kind === 'folder') todo.push(node)
    }
  }
  return inodes
}

const sortedChildren = (folder: FolderNode): [string, { readonly node: Node }][] =>
  [...folder.children].sort(([a], [b]) => (a < b ? -1 : 1))

/** Where the blocks of a file are: those that come from the spool, and those that are made here. */
type Plan = {
  readonly number: number
  readonly isFolder: boolean
  readonly inode: Buffer
  readonly copies: readonly { readonly from: number; readonly to: number; readonly count: number }[]
  readonly blocks: readonly { readonly at: number; readonly data: Buffer }[]
}

function planAll(inodes: ReadonlyMap<Node, Numbered>, space: Space): readonly Plan[] {
  const plans = [planJournal(space)]
  for (const [node, numbered] of inodes) plans.push(planNode(node, numbered, inodes, space))
  return plans
}

function planJournal(space: Space): Plan {
  // In whole stretches from the start of the disk; nothing but its first block has to be written.
  const extents = space.take([{ at: 0, from: 0, count: JOURNAL_BLOCKS }]).map(({ extent }) => extent)
  const { map, blocks } = encodeExtents(extents, () => space.one())
  return {
    number: JOURNAL_INODE,
    isFolder: false,
    inode: encodeInode({
      node: { kind: 'file', mode: 0o600, uid: 0, gid: 0, mtime: 0 },
      links: 1,
      size: JOURNAL_BLOCKS * BLOCK,
      sectors: (JOURNAL_BLOCKS + blocks.length) * 8,
      map,
      mapsExtents: true,
      attributeBlock: 0,
    }),
    copies: [],
    blocks: [{ at: extents[0]?.start ?? 0, data: encodeJournal(JOURNAL_BLOCKS) }, ...blocks],
  }
}

function planNode(node: Node, numbered: Numbered, inodes: ReadonlyMap<Node, Numbered>, space: Space): Plan {
  const { inside, block } = encodeAttributes(node.xattrs)
  const blocks: { at: number; data: Buffer }[] = []
  const copies: { from: number; to: number; count: number }[] = []
  let attributeBlock = 0
  if (block !== undefined) {
    attributeBlock = space.one()
    blocks.push({ at: attributeBlock, data: block })
  }
  let used = blocks.length
  const mapped = (extents: readonly Extent[]): Buffer => {
    const tree = encodeExtents(extents, () => space.one())
    blocks.push(...tree.blocks)
    used += tree.blocks.length + extents.reduce((sum, { count }) => sum + count, 0)
    return tree.map
  }
  const own = (data: Buffer): Buffer => {
    const count = Math.ceil(data.length / BLOCK)
    const taken = space.take([{ at: 0, from: 0, count }])
    for (const { extent } of taken)
      blocks.push({ at: extent.start, data: data.subarray(extent.at * BLOCK, (extent.at + extent.count) * BLOCK) })
    return mapped(taken.map(({ extent }) => extent))
  }
  const finish = (size: number, map: Buffer, mapsExtents: boolean): Plan => ({
    number: numbered.inode,
    isFolder: node.kind === 'folder',
    inode: encodeInode({
      node,
      links: numbered.links,
      size,
      sectors: used * 8,
      map,
      mapsExtents,
      ...(inside === undefined ? {} : { attributes: inside }),
      attributeBlock,
    }),
    copies,
    blocks,
  })
  switch (node.kind) {
    case 'file': {
      if (node.content.size > MAX_FILE_BYTES)
        throw new MicroVmError('image_failed', `the image has a file of ${node.content.size} bytes, more than fits`)
      const taken = space.take(node.content.runs)
      for (const { extent, from } of taken) copies.push({ from, to: extent.start, count: extent.count })
      return finish(node.content.size, mapped(taken.map(({ extent }) => extent)), true)
    }
    case 'folder': {
      const entries: DirectoryEntry[] = [
        { name: Buffer.from('.'), inode: numbered.inode, kind: 'folder' },
        { name: Buffer.from('..'), inode: numbered.parent, kind: 'folder' },
      ]
      for (const [name, { node: child }] of sortedChildren(node))
        entries.push({
          name: Buffer.from(name, 'latin1'),
          inode: inodes.get(child)?.inode ?? 0,
          kind: child.kind,
        })
      const data = encodeDirectory(entries)
      return finish(data.length, own(data), true)
    }
    case 'symlink': {
      const target = Buffer.from(node.target, 'latin1')
      const short = encodeShortLink(target)
      return short === undefined ? finish(target.length, own(target), true) : finish(target.length, short, false)
    }
    case 'char':
    case 'block':
      return finish(0, encodeDevice(node.devMajor, node.devMinor), false)
    case 'fifo':
      return finish(0, Buffer.alloc(60), false)
    default:
      return node satisfies never
  }
}

/** The blocks of the disk, given out from the first to the last. What each group needs for itself lies at its start. */
class Space {
  readonly #descriptorBlocks: number
  #next = 0

  constructor(descriptorBlocks: number) {
    this.#descriptorBlocks = descriptorBlocks
  }

  /** Copies of the superblock are in groups whose number is a power of 3, 5 or 7. */
  hasCopy(group: number): boolean {
    if (group <= 1) return true
    return [3, 5, 7].some((base) => {
      let power = base
      while (power < group) power *= base
      return power === group
    })
  }

  /** Where a group's own blocks start, and where they end. */
  overhead(group: number): { readonly bitmaps: number; readonly end: number } {
    const bitmaps = group * BLOCKS_PER_GROUP + (this.hasCopy(group) ? 1 + this.#descriptorBlocks : 0)
    return { bitmaps, end: bitmaps + 2 + INODE_BLOCKS }
  }

  one(): number {
    this.#skip()
    return this.#next++
  }

  #skip(): void {
    const { end } = this.overhead(Math.floor(this.#next / BLOCKS_PER_GROUP))
    if (this.#next < end) this.#next = end
  }

  /** Blocks for runs of a file, each with where its contents come from. */
  take(runs: readonly Run[]): { readonly extent: Extent; readonly from: number }[] {
    const taken: { extent: Extent; from: number }[] = []
    for (const run of runs)
      for (let done = 0; done < run.count;) {
        this.#skip()
        const left = BLOCKS_PER_GROUP - (this.#next % BLOCKS_PER_GROUP)
        const count = Math.min(run.count - done, left, MAX_EXTENT)
        taken.push({ extent: { at: run.at + done, start: this.#next, count }, from: run.from + done })
        this.#next += count
        done += count
      }
    return taken
  }

  groups(spare: number): number {
    return Math.ceil((this.#next + spare) / BLOCKS_PER_GROUP)
  }

  /** How many blocks of a group are in use, its own ones counted; they are its first ones. */
  used(group: number): number {
    const start = group * BLOCKS_PER_GROUP
    const end = Math.max(this.overhead(group).end, Math.min(this.#next, start + BLOCKS_PER_GROUP))
    return end - start
  }

  get descriptorBlocks(): number {
    return this.#descriptorBlocks
  }
}

async function write(
  plan: readonly Plan[],
  space: Space,
  groups: number,
  spool: Spool,
  target: FileHandle,
  uuid: Buffer,
): Promise<void> {
  // Numbers are given without gaps, and all reserved ones are in use.
  const lastInode = plan.reduce((last, { number }) => Math.max(last, number), 0)
  const usedInodes = (group: number): number =>
    Math.min(Math.max(lastInode - group * INODES_PER_GROUP, 0), INODES_PER_GROUP)
  const tables = Array.from({ length: groups }, (_, group) => Buffer.alloc(usedInodes(group) * INODE_BYTES))
  const folders = Array.from({ length: groups }, () => 0)
  for (const { number, inode, isFolder, copies, blocks } of plan) {
    const group = Math.floor((number - 1) / INODES_PER_GROUP)
    if (isFolder) folders[group] = (folders[group] ?? 0) + 1
    inode.copy(tables[group] ?? Buffer.alloc(0), ((number - 1) % INODES_PER_GROUP) * INODE_BYTES)
    for (const { from, to, count } of copies) await spool.copy({ from, count }, target, to)
    for (const { at, data } of blocks) await writeAll(target, data, at * BLOCK)
  }
  for (const [group, table] of tables.entries())
    await writeAll(target, table, (space.overhead(group).bitmaps + 2) * BLOCK)

  const descriptors = Buffer.alloc(space.descriptorBlocks * BLOCK)
  let freeBlocks = 0
  let freeInodes = 0
  for (let group = 0; group < groups; group++) {
    const { bitmaps } = space.overhead(group)
    const used = space.used(group)
    const inodes = usedInodes(group)
    await writeAll(
      target,
      Buffer.concat([bitmap(used, BLOCKS_PER_GROUP), bitmap(inodes, INODES_PER_GROUP)]),
      bitmaps * BLOCK,
    )
    freeBlocks += BLOCKS_PER_GROUP - used
    freeInodes += INODES_PER_GROUP - inodes
    encodeDescriptor(
      {
        index: group,
        blockBitmap: bitmaps,
        inodeBitmap: bitmaps + 1,
        inodeTable: bitmaps + 2,
        freeBlocks: BLOCKS_PER_GROUP - used,
        freeInodes: INODES_PER_GROUP - inodes,
        folders: folders[group] ?? 0,
        unusedInodes: INODES_PER_GROUP - inodes,
      },
      uuid,
    ).copy(descriptors, group * DESCRIPTOR_BYTES)
  }
  const journal = plan.find(({ number }) => number === JOURNAL_INODE)
  const parts = {
    inodes: groups * INODES_PER_GROUP,
    blocks: groups * BLOCKS_PER_GROUP,
    freeBlocks,
    freeInodes,
    blocksPerGroup: BLOCKS_PER_GROUP,
    inodesPerGroup: INODES_PER_GROUP,
    uuid,
    journalMap: Buffer.from(journal?.inode.subarray(0x28, 0x28 + 60) ?? []),
    journalBytes: JOURNAL_BLOCKS * BLOCK,
  }
  for (let group = 0; group < groups; group++) {
    if (!space.hasCopy(group)) continue
    const start = group * BLOCKS_PER_GROUP * BLOCK
    await writeAll(target, encodeSuperblock(parts, group), start + (group === 0 ? 1024 : 0))
    await writeAll(target, descriptors, start + BLOCK)
  }
}

/** The first `used` bits are set, and those beyond `size`, which stand for nothing. */
function bitmap(used: number, size: number): Buffer {
  const bits = Buffer.alloc(BLOCK)
  bits.fill(0xff, 0, used >> 3)
  if (used % 8 !== 0) bits[used >> 3] = (1 << (used % 8)) - 1
  bits.fill(0xff, size >> 3)
  return bits
}
