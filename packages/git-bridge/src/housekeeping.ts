import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { failed, type GitSession } from './git.ts'

/** Packs that a clone may have: each import and export brings one, and git looks into all of them. */
const packLimit = 50

/** Brings the small packs of a clone together when there are many. Nothing is dropped, whether anything names it or not. */
export async function consolidate(git: GitSession, dir: string): Promise<void> {
  const packs = (await readdir(join(dir, 'objects', 'pack'))).filter((name) => name.endsWith('.pack'))
  if (packs.length < packLimit) return
  const args = ['repack', '-d', '--quiet', '--geometric=2']
  const answer = await git.askGuarded(dir, args)
  if (answer.code !== 0) throw failed(args, answer)
}
