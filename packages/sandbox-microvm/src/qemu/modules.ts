import { readdir, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { MicroVmError } from '../errors.ts'

/** A kernel module and what it says about itself. */
export type KernelModule = { readonly name: string; readonly file: string; readonly data: Uint8Array }

/**
 * What the guest agent loads before it serves: the disk, the port, the root file system with its checksums, the shares, the link to the network.
 * Names that a kernel has built in need no file.
 */
export const NEEDED_MODULES: readonly string[] = [
  'virtio_pci',
  'virtio_blk',
  'virtio_console',
  'crc32c_generic',
  'ext4',
  '9p',
  '9pnet_virtio',
  'veth',
]

/** `-` and `_` are one in names of modules. */
const plain = (name: string): string => name.replaceAll('-', '_')

/**
 * The named modules of the kernel in `folder` (`lib/modules/<version>`) and all that they need, in the order in which they
 * must be loaded. A package brings no `modules.dep`: each module says itself what it needs.
 */
export async function collectModules(
  folder: string,
  names: readonly string[],
  unpack: (xz: Uint8Array) => Promise<Uint8Array>,
): Promise<readonly KernelModule[]> {
  const files = new Map<string, string>()
  for (const entry of await readdir(folder, { recursive: true })) {
    const match = /^(.+)\.ko(\.xz)?$/.exec(basename(entry))
    if (match?.[1] !== undefined) files.set(plain(match[1]), join(folder, entry))
  }
  const builtin = new Set(
    (await readFile(join(folder, 'modules.builtin'), 'utf8')).split('\n').map((line) => plain(basename(line, '.ko'))),
  )
  const loaded = new Map<string, KernelModule>()
  const load = async (name: string): Promise<void> => {
    if (loaded.has(name) || builtin.has(name)) return
    const path = files.get(name)
    if (path === undefined) throw new MicroVmError('image_failed', `the kernel package has no module ${name}`)
    const bytes = await readFile(path)
    const data = path.endsWith('.xz') ? await unpack(bytes) : bytes
    for (const needed of dependencies(data)) await load(needed)
    loaded.set(name, { name, file: `${name}.ko`, data })
  }
  for (const name of names) await load(plain(name))
  return [...loaded.values()]
}

/** The names in a module's `depends=` line. */
function dependencies(data: Uint8Array): readonly string[] {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.length)
  const marker = '\0depends='
  const at = bytes.indexOf(marker)
  if (at < 0) return []
  const line = bytes.toString('latin1', at + marker.length, bytes.indexOf(0, at + marker.length))
  return line
    .split(',')
    .filter((name) => name !== '')
    .map(plain)
}
