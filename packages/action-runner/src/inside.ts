import { lstat, mkdir } from 'node:fs/promises'
import { join } from 'node:path'

/** What stands at a path below a root when no link is followed on the way. */
export type Inside =
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'missing'; readonly path: string }
  | { readonly kind: 'link'; readonly at: string }
  | { readonly kind: 'other'; readonly at: string }

/**
 * Walks `relative` (checked: no `..`, not absolute) below `root` by lstat. Nothing may run in the folder meanwhile: this is
 * for before an action starts and after all of it is dead.
 *
 * @param create makes the missing directories.
 */
export async function walkInside(
  root: string,
  relative: string,
  create?: (path: string) => Promise<void>,
): Promise<Inside> {
  let path = root
  const parts = relative === '' ? [] : relative.split('/')
  for (const [index, part] of parts.entries()) {
    path = join(path, part)
    const stat = await lstatOrMissing(path)
    if (stat === undefined) {
      if (create === undefined) return { kind: 'missing', path: join(root, relative) }
      await mkdir(path, { mode: 0o755 })
      await create(path)
    } else if (!stat.isDirectory()) {
      return { kind: stat.isSymbolicLink() ? 'link' : 'other', at: parts.slice(0, index + 1).join('/') }
    }
  }
  return { kind: 'directory', path }
}

async function lstatOrMissing(path: string): Promise<Awaited<ReturnType<typeof lstat>> | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}
