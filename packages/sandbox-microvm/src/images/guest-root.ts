import { MicroVmError } from '../errors.ts'
import type { RootTree } from './root-tree.ts'
import type { Spool } from './spool.ts'

/** Which system an image holds, by its own word. */
export type Distribution = {
  /** `debian`, `ubuntu`, `alpine`; empty when it does not say. */
  readonly id: string
  /** Those that it is made from. */
  readonly like: string[]
  /** It has Debian's package manager. */
  readonly apt: boolean
}

/** What guests share whatever they are made of: their name, and git in a folder that belongs to whoever it is on the host. */
const FILES: readonly (readonly [path: string, text: string])[] = [
  ['etc/hostname', 'reve\n'],
  ['etc/hosts', '127.0.0.1 localhost\n127.0.1.1 reve\n::1 localhost\n'],
  ['etc/resolv.conf', ''],
]
const GIT = '[safe]\n\tdirectory = *\n'
const FOLDERS: readonly (readonly [path: string, mode: number])[] = [
  ['workspace', 0o755],
  ['dev', 0o755],
  ['proc', 0o555],
  ['sys', 0o555],
  ['run', 0o755],
  ['root', 0o700],
  ['tmp', 0o1777],
]
const MAX_TEXT = 64 * 1024

/**
 * Makes the file system of any image one that a guest can start in.
 *
 * @throws MicroVmError `image_failed` when there is no shell in it.
 */
export async function prepareRoot(tree: RootTree, spool: Spool, what: string): Promise<Distribution> {
  const shell = tree.find('bin/sh')
  if (shell?.kind !== 'file' || (shell.mode & 0o111) === 0)
    throw new MicroVmError(
      'image_failed',
      `${what} has no /bin/sh, so no command can run in it; choose an image with a shell (debian:trixie-slim, say)`,
    )
  const distribution = await distributionOf(tree, spool)
  tree.beginLayer()
  for (const [path, mode] of FOLDERS) tree.makeFolder(path, mode)
  for (const [path, text] of FILES) tree.putFile(path, await spool.add(Buffer.from(text)))
  const git = tree.find('etc/gitconfig')
  const before = git?.kind === 'file' ? await spool.read(git.content, MAX_TEXT) : Buffer.alloc(0)
  tree.putFile('etc/gitconfig', await spool.add(Buffer.concat([before, Buffer.from(GIT)])))
  return distribution
}

async function distributionOf(tree: RootTree, spool: Spool): Promise<Distribution> {
  const release = tree.find('etc/os-release') ?? tree.find('usr/lib/os-release')
  const text = release?.kind === 'file' ? (await spool.read(release.content, MAX_TEXT)).toString() : ''
  const value = (key: string): string => new RegExp(`^${key}=["']?([a-z0-9 ._-]*)["']?\\s*$`, 'm').exec(text)?.[1] ?? ''
  return {
    id: value('ID'),
    like: value('ID_LIKE').split(' ').filter(Boolean),
    apt: tree.find('usr/bin/apt-get')?.kind === 'file',
  }
}
