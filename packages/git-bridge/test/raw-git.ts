import { execFileSync } from 'node:child_process'
import { git } from './repositories.ts'

/** One line of a tree object, with any mode, any name (a byte for each character) and any object. */
export type RawEntry = readonly [mode: string, name: string, oid: string]

/** Writes a tree object as it stands, however wrong it is. */
export function rawTree(dir: string, entries: readonly RawEntry[]): string {
  const input = Buffer.concat(
    entries.flatMap(([mode, name, oid]) => [Buffer.from(`${mode} ${name}\0`, 'latin1'), Buffer.from(oid, 'hex')]),
  )
  return execFileSync('git', ['-C', dir, 'hash-object', '-t', 'tree', '-w', '--literally', '--stdin'], {
    input,
    encoding: 'utf8',
  }).trim()
}

export function rawBlob(dir: string, content: string | Buffer): string {
  return execFileSync('git', ['-C', dir, 'hash-object', '-w', '--stdin'], { input: content, encoding: 'utf8' }).trim()
}

/** Makes a tree the commit of `main`. */
export function commitTree(dir: string, tree: string): string {
  const commit = git(dir, 'commit-tree', tree, '-m', 'raw')
  git(dir, 'update-ref', 'refs/heads/main', commit)
  return commit
}

/** Makes a commit of one file in so many levels of trees, the root among them. */
export function deepCommit(dir: string, levels: number): void {
  const path = `${'d/'.repeat(levels - 1)}leaf`
  const input = `commit refs/heads/main\ncommitter a <a@b> 0 +0000\ndata 4\ndeep\nfrom refs/heads/main^0\ndeleteall\nM 100644 inline ${path}\ndata 1\nx\n`
  execFileSync('git', ['-C', dir, 'fast-import', '--quiet', '--force'], { input })
}
