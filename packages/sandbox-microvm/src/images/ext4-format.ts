import { MicroVmError } from '../errors.ts'
import type { Node } from './root-tree.ts'
import { BLOCK } from './spool.ts'

// The structures of an ext4 file system on disk, as Documentation/filesystems/ext4 of Linux describes them.

export const INODE_BYTES = 256
export const DESCRIPTOR_BYTES = 32
export const ROOT_INODE = 2
export const JOURNAL_INODE = 8
/** The first that is not reserved; by custom `lost+found`. */
export const FIRST_INODE = 11

/** Blocks of a file: `at` in the file, `start` on the disk. */
export type Extent = { readonly at: number; readonly start: number; readonly count: number }
/** The longest extent. */
export const MAX_EXTENT = 32_768

const EXTENTS_FLAG = 0x80000
const EXTRA_BYTES = 32
const ENTRIES_PER_BLOCK = (BLOCK - 12) / 12
const ENTRIES_PER_INODE = 4

/** Numbers into a buffer, one after the other or where they belong. */
const u16 = (buffer: Buffer, at: number, value: number): void => void buffer.writeUInt16LE(value & 0xffff, at)
const u32 = (buffer: Buffer, at: number, value: number): void => void buffer.writeUInt32LE(value >>> 0, at)
const high = (value: number): number => Math.floor(value / 2 ** 32)

/** The types of files as an inode and as a folder's entry have them. */
const TYPES: Readonly<Record<Node['kind'], { readonly mode: number; readonly entry: number }>> = {
  file: { mode: 0o100000, entry: 1 },
  folder: { mode: 0o040000, entry: 2 },
  char: { mode: 0o020000, entry: 3 },
  block: { mode: 0o060000, entry: 4 },
  fifo: { mode: 0o010000, entry: 5 },
  symlink: { mode: 0o120000, entry: 7 },
}

/** What an inode says besides its node's own metadata. */
export type InodeParts = {
  readonly node: Pick<Node, 'kind' | 'mode' | 'uid' | 'gid' | 'mtime'>
  readonly links: number
  readonly size: number
  /** 512-byte sectors that belong to it. */
  readonly sectors: number
  /** The 60 bytes that say where its contents are. */
  readonly map: Buffer
  readonly mapsExtents: boolean
  /** Attributes inside of the inode, and the block with those that do not fit. */
  readonly attributes?: Buffer
  readonly attributeBlock: number
}

export function encodeInode(parts: InodeParts): Buffer {
  const { node, size, map } = parts
  const inode = Buffer.alloc(INODE_BYTES)
  u16(inode, 0x00, TYPES[node.kind].mode | node.mode)
  u16(inode, 0x02, node.uid)
  u32(inode, 0x04, size)
  u16(inode, 0x18, node.gid)
  // With more subfolders than can be counted, the number means "many".
  u16(inode, 0x1a, parts.links > 65_000 ? 1 : parts.links)
  u32(inode, 0x1c, parts.sectors)
  u32(inode, 0x20, parts.mapsExtents ? EXTENTS_FLAG : 0)
  map.copy(inode, 0x28)
  u32(inode, 0x68, parts.attributeBlock)
  u32(inode, 0x6c, high(size))
  u16(inode, 0x74, high(parts.sectors))
  u16(inode, 0x78, node.uid >>> 16)
  u16(inode, 0x7a, node.gid >>> 16)
  u16(inode, 0x80, EXTRA_BYTES)
  const { seconds, extra } = encodeTime(node.mtime)
  for (const at of [0x08, 0x0c, 0x10, 0x90]) u32(inode, at, seconds)
  for (const at of [0x84, 0x88, 0x8c, 0x94]) u32(inode, at, extra)
  parts.attributes?.copy(inode, 128 + EXTRA_BYTES)
  return inode
}

/** 34 bits of seconds and 30 of nanoseconds; times that do not fit become the next that do. */
function encodeTime(time: number): { readonly seconds: number; readonly extra: number } {
  const limited = Math.min(Math.max(time, -(2 ** 31)), 2 ** 34 - 2 ** 31 - 1)
  const whole = Math.floor(limited)
  const epoch = Math.floor((whole + 2 ** 31) / 2 ** 32)
  const nanoseconds = Math.min(999_999_999, Math.round((limited - whole) * 1e9))
  return { seconds: whole, extra: (nanoseconds << 2) | epoch }
}

/** Device numbers, in the old form where they fit it. */
export function encodeDevice(major: number, minor: number): Buffer {
  const map = Buffer.alloc(60)
  if (major < 256 && minor < 256) u32(map, 0, (major << 8) | minor)
  else u32(map, 4, (minor & 0xff) | (major << 8) | ((minor & 0xfff00) << 12))
  return map
}

/** The target of a link that is short enough, or undefined. */
export function encodeShortLink(target: Buffer): Buffer | undefined {
  if (target.length >= 60) return undefined
  const map = Buffer.alloc(60)
  target.copy(map)
  return map
}

/** The tree of extents: what stands in the inode, and the blocks below it, each where `allocate` says. */
export function encodeExtents(
  extents: readonly Extent[],
  allocate: () => number,
): { readonly map: Buffer; readonly blocks: readonly { readonly at: number; readonly data: Buffer }[] } {
  const blocks: { at: number; data: Buffer }[] = []
  let entries: Buffer[] = extents.map(({ at, start, count }) => {
    const entry = Buffer.alloc(12)
    u32(entry, 0, at)
    u16(entry, 4, count)
    u16(entry, 6, high(start))
    u32(entry, 8, start)
    return entry
  })
  let depth = 0
  for (; entries.length > ENTRIES_PER_INODE; depth++) {
    const above: Buffer[] = []
    for (let from = 0; from < entries.length; from += ENTRIES_PER_BLOCK) {
      const part = entries.slice(from, from + ENTRIES_PER_BLOCK)
      const at = allocate()
      const data = Buffer.alloc(BLOCK)
      node(part, ENTRIES_PER_BLOCK, depth).copy(data)
      blocks.push({ at, data })
      const index = Buffer.alloc(12)
      u32(index, 0, part[0]?.readUInt32LE(0) ?? 0)
      u32(index, 4, at)
      u16(index, 8, high(at))
      above.push(index)
    }
    entries = above
  }
  const map = Buffer.alloc(60)
  node(entries, ENTRIES_PER_INODE, depth).copy(map)
  return { map, blocks }
}

function node(entries: readonly Buffer[], most: number, depth: number): Buffer {
  const header = Buffer.alloc(12)
  u16(header, 0, 0xf30a)
  u16(header, 2, entries.length)
  u16(header, 4, most)
  u16(header, 6, depth)
  return Buffer.concat([header, ...entries])
}

/** A name in a folder. */
export type DirectoryEntry = { readonly name: Buffer; readonly inode: number; readonly kind: Node['kind'] }

/** The blocks of a folder: entries one after the other, none over the edge of a block. */
export function encodeDirectory(entries: readonly DirectoryEntry[]): Buffer {
  const blocks: Buffer[] = []
  let block = Buffer.alloc(BLOCK)
  let used = 0
  let last = 0
  const finish = (): void => {
    u16(block, last + 4, BLOCK - last)
    blocks.push(block)
  }
  for (const { name, inode, kind } of entries) {
    const length = (8 + name.length + 3) & ~3
    if (used + length > BLOCK) {
      finish()
      block = Buffer.alloc(BLOCK)
      used = 0
    }
    u32(block, used, inode)
    u16(block, used + 4, length)
    block.writeUInt8(name.length, used + 6)
    block.writeUInt8(TYPES[kind].entry, used + 7)
    name.copy(block, used + 8)
    last = used
    used += length
  }
  finish()
  return Buffer.concat(blocks)
}

/** The prefixes of attributes that mean something in a guest, and their numbers. */
const ATTRIBUTE_PREFIXES: readonly (readonly [string, number])[] = [
  ['user.', 1],
  ['security.', 6],
]
const ATTRIBUTE_MAGIC = 0xea020000
const INODE_ATTRIBUTE_BYTES = INODE_BYTES - 128 - EXTRA_BYTES

/** Attributes, in the inode where they fit, else as a block of their own. Those of the host's own layers are left out. */
export function encodeAttributes(attributes: ReadonlyMap<string, Buffer>): {
  readonly inside?: Buffer
  readonly block?: Buffer
} {
  const known = [...attributes].flatMap(([full, value]) => {
    const [prefix, index] = ATTRIBUTE_PREFIXES.find(([start]) => full.startsWith(start)) ?? []
    const name = Buffer.from(full.slice(prefix?.length ?? 0), 'latin1')
    return index === undefined || name.length === 0 || name.length > 255 ? [] : [{ index, name, value }]
  })
  if (known.length === 0) return {}
  // The order in which the kernel looks for them in a block.
  known.sort((a, b) => a.index - b.index || a.name.length - b.name.length || Buffer.compare(a.name, b.name))
  const inside = placeAttributes(known, 4, 4, INODE_ATTRIBUTE_BYTES)
  if (inside !== undefined) {
    u32(inside, 0, ATTRIBUTE_MAGIC)
    return { inside }
  }
  const block = placeAttributes(known, 32, 0, BLOCK)
  if (block === undefined)
    throw new MicroVmError('image_failed', 'a file of the image has more than 4 KiB of extended attributes')
  u32(block, 0, ATTRIBUTE_MAGIC)
  u32(block, 4, 1)
  u32(block, 8, 1)
  return { block }
}

/** Entries from `start` on, values from the end backwards, their places counted from `base`; undefined: no room. */
function placeAttributes(
  attributes: readonly { readonly index: number; readonly name: Buffer; readonly value: Buffer }[],
  start: number,
  base: number,
  size: number,
): Buffer | undefined {
  const area = Buffer.alloc(size)
  let at = start
  let end = size
  for (const { index, name, value } of attributes) {
    const entry = 16 + ((name.length + 3) & ~3)
    end -= (value.length + 3) & ~3
    // Four zero bytes end the entries.
    if (at + entry + 4 > end) return undefined
    area.writeUInt8(name.length, at)
    area.writeUInt8(index, at + 1)
    u16(area, at + 2, value.length === 0 ? 0 : end - base)
    u32(area, at + 8, value.length)
    u32(area, at + 12, attributeHash(name, value))
    name.copy(area, at + 16)
    value.copy(area, end)
    at += entry
  }
  return area
}

function attributeHash(name: Buffer, value: Buffer): number {
  let hash = 0
  for (const byte of name) hash = ((hash << 5) ^ (hash >>> 27) ^ byte) >>> 0
  const padded = Buffer.alloc((value.length + 3) & ~3)
  value.copy(padded)
  for (let at = 0; at < padded.length; at += 4) hash = ((hash << 16) ^ (hash >>> 16) ^ padded.readUInt32LE(at)) >>> 0
  return hash
}

/** One group of blocks. */
export type GroupParts = {
  readonly index: number
  readonly blockBitmap: number
  readonly inodeBitmap: number
  readonly inodeTable: number
  readonly freeBlocks: number
  readonly freeInodes: number
  readonly folders: number
  /** Inodes at its end that were never used. */
  readonly unusedInodes: number
}

/** Its inode table is full of zeroes where nothing is. */
const INODE_ZEROED = 0x4

export function encodeDescriptor(group: GroupParts, uuid: Buffer): Buffer {
  const descriptor = Buffer.alloc(DESCRIPTOR_BYTES)
  u32(descriptor, 0, group.blockBitmap)
  u32(descriptor, 4, group.inodeBitmap)
  u32(descriptor, 8, group.inodeTable)
  u16(descriptor, 12, group.freeBlocks)
  u16(descriptor, 14, group.freeInodes)
  u16(descriptor, 16, group.folders)
  u16(descriptor, 18, INODE_ZEROED)
  u16(descriptor, 28, group.unusedInodes)
  const number = Buffer.alloc(4)
  u32(number, 0, group.index)
  u16(descriptor, 30, crc16(Buffer.concat([uuid, number, descriptor.subarray(0, 30)])))
  return descriptor
}

function crc16(bytes: Buffer): number {
  let crc = 0xffff
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 0 ? crc >>> 1 : (crc >>> 1) ^ 0xa001
  }
  return crc
}

/** What a superblock says. */
export type SuperblockParts = {
  readonly inodes: number
  readonly blocks: number
  readonly freeBlocks: number
  readonly freeInodes: number
  readonly blocksPerGroup: number
  readonly inodesPerGroup: number
  readonly uuid: Buffer
  /** The journal's inode, kept a second time. */
  readonly journalMap: Buffer
  readonly journalBytes: number
}

const COMPATIBLE = 0x4 | 0x8 | 0x20 // journal, attributes, indexed folders
const INCOMPATIBLE = 0x2 | 0x40 | 0x200 // types in folders, extents, flexible groups
const READ_COMPATIBLE = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 // sparse copies, large and huge files, checksums, links, large inodes

/** The superblock, as it stands in `group`. */
export function encodeSuperblock(parts: SuperblockParts, group: number): Buffer {
  const block = Buffer.alloc(1024)
  const write: readonly (readonly [16 | 32, number, number])[] = [
    [32, 0x00, parts.inodes],
    [32, 0x04, parts.blocks],
    [32, 0x08, Math.floor(parts.blocks / 100)],
    [32, 0x0c, parts.freeBlocks],
    [32, 0x10, parts.freeInodes],
    [32, 0x18, 2], // blocks of 4 KiB
    [32, 0x1c, 2],
    [32, 0x20, parts.blocksPerGroup],
    [32, 0x24, parts.blocksPerGroup],
    [32, 0x28, parts.inodesPerGroup],
    [16, 0x36, 0xffff], // no check after a number of mounts
    [16, 0x38, 0xef53],
    [16, 0x3a, 1], // clean
    [16, 0x3c, 1], // go on after an error
    [32, 0x4c, 1],
    [32, 0x54, FIRST_INODE],
    [16, 0x58, INODE_BYTES],
    [16, 0x5a, group],
    [32, 0x5c, COMPATIBLE],
    [32, 0x60, INCOMPATIBLE],
    [32, 0x64, READ_COMPATIBLE],
    [32, 0xe0, JOURNAL_INODE],
    [32, 0x100, 0x0c], // attributes and access lists are on
    [32, 0x148, high(parts.journalBytes)],
    [32, 0x14c, parts.journalBytes],
    [16, 0x15c, EXTRA_BYTES],
    [16, 0x15e, EXTRA_BYTES],
    [32, 0x160, 1], // names are hashed as signed bytes
  ]
  for (const [bits, at, value] of write) (bits === 16 ? u16 : u32)(block, at, value)
  parts.uuid.copy(block, 0x68)
  parts.uuid.copy(block, 0xec) // the seed of folders' hashes
  block.writeUInt8(1, 0xfc)
  block.writeUInt8(1, 0xfd)
  parts.journalMap.copy(block, 0x10c)
  block.writeUInt8(4, 0x174) // 16 groups are one flexible group
  return block
}

/** The first block of an empty journal of so many blocks; its numbers are big-endian. */
export function encodeJournal(blocks: number): Buffer {
  const block = Buffer.alloc(1024)
  const write: readonly (readonly [number, number])[] = [
    [0x00, 0xc03b3998],
    [0x04, 4],
    [0x0c, BLOCK],
    [0x10, blocks],
    [0x14, 1],
    [0x18, 1],
    [0x40, 1],
  ]
  for (const [at, value] of write) block.writeUInt32BE(value, at)
  return block
}
