import { open } from 'node:fs/promises'

// The format is QEMU's docs/interop/qcow2.txt, version 3; all numbers are big-endian.

const CLUSTER_BITS = 16
const CLUSTER = 2 ** CLUSTER_BITS
/** One entry of the first table stands for as much as a second table, one cluster of 8-byte entries, maps. */
const MAPPED = (CLUSTER / 8) * CLUSTER
const MAGIC = 0x51_46_49_fb
const VERSION = 3
const HEADER_BYTES = 104
const EXTENSION_BACKING_FORMAT = 0xe2_79_2a_ca
const REFCOUNT_ORDER = 4
const MAX_NAME = 1023

/**
 * Makes a disk in the qcow2 format at a new path: `bytes` long, empty, over the raw image `backing`, which is never written
 * to. A hypervisor fills it as its guest writes.
 */
export async function createQcow2(path: string, backing: string, bytes: number): Promise<void> {
  const firstTable = Math.ceil(bytes / MAPPED)
  const firstClusters = Math.ceil((firstTable * 8) / CLUSTER)
  // Header, table of reference counts, the one block of them, first table.
  const used = 3 + firstClusters
  const name = Buffer.from(backing)
  if (name.length > MAX_NAME) throw new RangeError(`the path of a disk's image has at most ${MAX_NAME} bytes`)
  const format = Buffer.from('raw\0\0\0\0\0')
  const nameAt = HEADER_BYTES + 8 + format.length + 8

  const header = Buffer.alloc(CLUSTER)
  header.writeUInt32BE(MAGIC, 0)
  header.writeUInt32BE(VERSION, 4)
  header.writeBigUInt64BE(BigInt(nameAt), 8)
  header.writeUInt32BE(name.length, 16)
  header.writeUInt32BE(CLUSTER_BITS, 20)
  header.writeBigUInt64BE(BigInt(bytes), 24)
  header.writeUInt32BE(firstTable, 36)
  header.writeBigUInt64BE(BigInt(3 * CLUSTER), 40)
  header.writeBigUInt64BE(BigInt(CLUSTER), 48)
  header.writeUInt32BE(1, 56)
  header.writeUInt32BE(REFCOUNT_ORDER, 96)
  header.writeUInt32BE(HEADER_BYTES, 100)
  header.writeUInt32BE(EXTENSION_BACKING_FORMAT, HEADER_BYTES)
  header.writeUInt32BE('raw'.length, HEADER_BYTES + 4)
  format.copy(header, HEADER_BYTES + 8)
  name.copy(header, nameAt)

  const counts = Buffer.alloc(CLUSTER)
  counts.writeBigUInt64BE(BigInt(2 * CLUSTER), 0)
  const block = Buffer.alloc(CLUSTER)
  for (let cluster = 0; cluster < used; cluster++) block.writeUInt16BE(1, cluster * 2)

  await using file = await open(path, 'wx', 0o600)
  await file.write(Buffer.concat([header, counts, block]), 0, 3 * CLUSTER, 0)
  await file.truncate(used * CLUSTER)
  await file.sync()
}

/**
 * Gives a disk that no hypervisor has open a size of `bytes`, when that is more than it has; what it holds stays. Killed at any
 * instant it has the old size or the new one.
 *
 * @returns the size that it has now; undefined for what is no disk that `createQcow2` made, which is left as it is
 */
export async function growQcow2(path: string, bytes: number): Promise<number | undefined> {
  await using file = await open(path, 'r+')
  const header = Buffer.alloc(HEADER_BYTES)
  const { bytesRead } = await file.read(header, 0, HEADER_BYTES, 0)
  if (bytesRead < HEADER_BYTES || header.readUInt32BE(0) !== MAGIC || header.readUInt32BE(4) !== VERSION)
    return undefined
  const has = Number(header.readBigUInt64BE(24))
  if (bytes <= has) return has
  const entries = header.readUInt32BE(36)
  const wanted = Math.ceil(bytes / MAPPED)
  const fits = Math.ceil((entries * 8) / CLUSTER) === Math.ceil((wanted * 8) / CLUSTER)
  // One that was in use when its host lost power says so here, and has to be mended by its hypervisor first.
  const features = header.readBigUInt64BE(72)
  if (header.readUInt32BE(20) !== CLUSTER_BITS || features !== 0n || !fits) return has
  const table = Number(header.readBigUInt64BE(40))
  await file.write(Buffer.alloc((wanted - entries) * 8), 0, (wanted - entries) * 8, table + entries * 8)
  await file.sync()
  // Both numbers are in one sector.
  header.writeBigUInt64BE(BigInt(bytes), 24)
  header.writeUInt32BE(wanted, 36)
  await file.write(header, 0, HEADER_BYTES, 0)
  await file.sync()
  return bytes
}

/** The image under a disk as its header names it, or undefined for what is no such disk. */
export async function backingOf(path: string): Promise<string | undefined> {
  await using file = await open(path, 'r')
  const header = Buffer.alloc(CLUSTER)
  const { bytesRead } = await file.read(header, 0, CLUSTER, 0)
  if (bytesRead < CLUSTER || header.readUInt32BE(0) !== MAGIC) return undefined
  const at = Number(header.readBigUInt64BE(8))
  const length = header.readUInt32BE(16)
  return length > 0 && length <= MAX_NAME && at + length <= CLUSTER
    ? header.toString('utf8', at, at + length)
    : undefined
}
