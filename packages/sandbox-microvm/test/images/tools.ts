import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { writeExt4 } from '../../src/images/ext4.ts'
import { applyLayer, DEFAULT_LIMITS, type ImageLimits } from '../../src/images/layers.ts'
import { type Node, RootTree } from '../../src/images/root-tree.ts'
import { Spool } from '../../src/images/spool.ts'
import { folder, removeFolders } from '../helpers.ts'

/** One member of an archive that a test writes itself, valid or not. */
export type Member = {
  readonly name: string
  readonly type?: string
  readonly data?: string | Uint8Array
  readonly mode?: number
  readonly uid?: number
  readonly gid?: number
  readonly mtime?: number
  readonly link?: string
  readonly major?: number
  readonly minor?: number
  /** What the header says of the size; default: the truth. */
  readonly size?: number | string
  readonly checksum?: string
  readonly pax?: Readonly<Record<string, string | Uint8Array>>
}

const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, '0')}\0`

function header(member: Member, size: number): Buffer {
  const block = Buffer.alloc(512)
  block.write(member.name.slice(0, 100), 0, 'latin1')
  block.write(octal(member.mode ?? (member.type === '5' ? 0o755 : 0o644), 8), 100, 'latin1')
  block.write(octal(member.uid ?? 0, 8), 108, 'latin1')
  block.write(octal(member.gid ?? 0, 8), 116, 'latin1')
  block.write(typeof member.size === 'string' ? member.size : octal(member.size ?? size, 12), 124, 'latin1')
  block.write(octal(member.mtime ?? 1_700_000_000, 12), 136, 'latin1')
  block.write('        ', 148, 'latin1')
  block.write(member.type ?? '0', 156, 'latin1')
  block.write((member.link ?? '').slice(0, 100), 157, 'latin1')
  block.write('ustar\x0000', 257, 'latin1')
  block.write(octal(member.major ?? 0, 8), 329, 'latin1')
  block.write(octal(member.minor ?? 0, 8), 337, 'latin1')
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(member.checksum ?? `${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return block
}

const padded = (data: Buffer): Buffer => Buffer.concat([data, Buffer.alloc((512 - (data.length % 512)) % 512)])

function paxRecords(records: Readonly<Record<string, string | Uint8Array>>): Buffer {
  return Buffer.concat(
    Object.entries(records).map(([key, value]) => {
      const rest = Buffer.concat([Buffer.from(` ${key}=`, 'latin1'), Buffer.from(value), Buffer.from('\n')])
      let length = rest.length + 1
      while (`${length}`.length + rest.length !== length) length = `${length}`.length + rest.length
      return Buffer.concat([Buffer.from(`${length}`), rest])
    }),
  )
}

/** An archive of these members; it does what it is told, however wrong that is. */
export function tarOf(...members: readonly Member[]): Buffer {
  const parts: Buffer[] = []
  for (const member of members) {
    if (member.pax !== undefined) {
      const records = paxRecords(member.pax)
      parts.push(header({ name: 'pax', type: 'x' }, records.length), padded(records))
    }
    const data = Buffer.from(member.data ?? '')
    parts.push(header(member, data.length), padded(data))
  }
  return Buffer.concat([...parts, Buffer.alloc(1024)])
}

const spools: Spool[] = []

/** Closes and removes all that the functions here made. */
export async function cleanUp(): Promise<void> {
  for (const spool of spools.splice(0)) await spool[Symbol.asyncDispose]()
  removeFolders()
}

/** A spool and a tree in memory of these layers. */
export async function treeOf(
  layers: readonly Uint8Array[],
  limits: Partial<ImageLimits> = {},
): Promise<{ readonly tree: RootTree; readonly spool: Spool }> {
  const bounds = { ...DEFAULT_LIMITS, ...limits }
  const tree = new RootTree(bounds.files)
  const spool = await Spool.create(join(folder(), 'spool'), bounds.unpackedBytes)
  spools.push(spool)
  for (const layer of layers) await applyLayer(Readable.from([layer]), { tree, spool, limits: bounds })
  return { tree, spool }
}

/** Every path of a tree with what it is; contents as text. */
export async function listTree({ tree, spool }: { readonly tree: RootTree; readonly spool: Spool }) {
  const lines: Record<string, string> = {}
  const visit = async (node: Node, path: string): Promise<void> => {
    if (node.kind === 'file') lines[path] = (await spool.read(node.content, 1000)).toString('latin1')
    else if (node.kind === 'symlink') lines[path] = `-> ${node.target}`
    else lines[path] = node.kind
    if (node.kind === 'folder')
      for (const [name, child] of node.children) await visit(child.node, path === '' ? name : `${path}/${name}`)
  }
  await visit(tree.root, '')
  delete lines['']
  return lines
}

export const UUID = Buffer.from('00112233445566778899aabbccddeeff', 'hex')

/** The image of layers, on the disk. */
export async function imageOf(layers: readonly Uint8Array[]): Promise<string> {
  const path = join(folder(), 'root.ext4')
  const { tree, spool } = await treeOf(layers)
  await using file = await open(path, 'wx')
  await writeExt4(tree.root, spool, file, UUID)
  return path
}

/** Whether a program is here; a test that needs it as a judge is skipped otherwise, and says so. */
export function hasProgram(name: string): boolean {
  const found = ['/usr/sbin', '/sbin', '/usr/bin', '/bin', '/usr/local/bin'].some((path) =>
    existsSync(join(path, name)),
  )
  if (!found) console.warn(`tests that need ${name} are skipped: it is not installed`)
  return found
}

/** Runs a program of the host and gives what it says; a failure is one of the test. */
export function run(
  program: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly input?: Uint8Array } = {},
): string {
  const done = spawnSync(program, [...args], {
    encoding: 'latin1',
    maxBuffer: 2 ** 28,
    env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
    ...options,
  })
  if (done.status !== 0) throw new Error(`${program} ${args.join(' ')}: ${done.status} ${done.stdout} ${done.stderr}`)
  return done.stdout
}

export const sha256 = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** One image, as a registry or an archive has it. */
export type TestImage = {
  readonly manifest: Buffer
  readonly digest: string
  readonly config: Buffer
  readonly layers: readonly Buffer[]
  readonly blobs: ReadonlyMap<string, Buffer>
}

/** @param packed the layers as they are sent; `plain` as they are unpacked */
export function testImage(
  plain: readonly Buffer[],
  options: {
    readonly pack?: (layer: Buffer) => Buffer
    readonly config?: Readonly<Record<string, unknown>>
    readonly architecture?: string
    readonly diffIds?: readonly string[]
  } = {},
): TestImage {
  const layers = plain.map((layer) => options.pack?.(layer) ?? layer)
  const config = Buffer.from(
    JSON.stringify({
      architecture: options.architecture ?? 'amd64',
      os: 'linux',
      config: options.config ?? {},
      rootfs: { type: 'layers', diff_ids: options.diffIds ?? plain.map(sha256) },
    }),
  )
  const describe = (mediaType: string, bytes: Buffer) => ({ mediaType, digest: sha256(bytes), size: bytes.length })
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: describe('application/vnd.oci.image.config.v1+json', config),
      layers: layers.map((layer) => describe('application/vnd.oci.image.layer.v1.tar+gzip', layer)),
    }),
  )
  const blobs = new Map([config, ...layers].map((bytes) => [sha256(bytes), bytes]))
  return { manifest, digest: sha256(manifest), config, layers, blobs }
}

/** An index over images of several platforms. */
export const testIndex = (...images: readonly (readonly [platform: string, image: TestImage])[]): Buffer =>
  Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests: images.map(([platform, { manifest, digest }]) => {
        const [os, architecture] = platform.split('/')
        return {
          mediaType: 'application/vnd.oci.image.manifest.v1+json',
          digest,
          size: manifest.length,
          platform: { os, architecture },
        }
      }),
    }),
  )

/** A root that a guest can start in, without being one: a shell that is none. */
export const tinyRoot = (...more: readonly Member[]): Buffer =>
  tarOf({ name: 'bin/', type: '5' }, { name: 'bin/sh', data: '#!', mode: 0o755 }, ...more)

export const remove = (path: string): Promise<void> => rm(path, { recursive: true, force: true })
