/** One file or folder of an archive. */
export type CpioEntry = {
  /** Path without a leading slash. */
  readonly path: string
  /** Default: a folder. */
  readonly data?: Uint8Array
  /** Permission bits; default 0755. */
  readonly mode?: number
}

const FOLDER = 0o040000
const FILE = 0o100000

/** An uncompressed archive in the "newc" format, which Linux takes as an initial file system. Same entries, same bytes. */
export function writeCpio(entries: readonly CpioEntry[]): Uint8Array {
  const parts: Uint8Array[] = []
  let length = 0
  const add = (bytes: Uint8Array): void => {
    parts.push(bytes)
    length += bytes.length
  }
  // Names and contents each start at a multiple of four.
  const align = (to: number): void => add(new Uint8Array((to - (length % to)) % to))
  const write = (inode: number, name: string, mode: number, data: Uint8Array): void => {
    const path = Buffer.from(`${name}\0`)
    const links = 1
    const fields = [inode, mode, 0, 0, links, 0, data.length, 0, 0, 0, 0, path.length, 0]
    add(Buffer.from(`070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}`))
    add(path)
    align(4)
    add(data)
    align(4)
  }
  for (const [index, { path, data, mode = 0o755 }] of entries.entries())
    write(index + 1, path, (data === undefined ? FOLDER : FILE) | mode, data ?? new Uint8Array())
  write(0, 'TRAILER!!!', 0, new Uint8Array())
  align(512)
  return new Uint8Array(Buffer.concat(parts))
}
