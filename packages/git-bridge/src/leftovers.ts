import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * Takes away what a killed git left in a clone: lock files, half-written objects and packs, and the folders in which a push or a
 * fetch collects what it has not accepted yet. Only for a clone that nothing else uses now.
 */
export async function clearLeftovers(dir: string): Promise<void> {
  const paths = [
    ...(await matching(dir, /\.lock$|^packed-refs\.new$|^gc\.pid$/)),
    ...(await matching(join(dir, 'objects'), /^(?:tmp_|incoming-)/)),
    ...(await matching(join(dir, 'objects', 'pack'), /^(?:tmp_|\.tmp-)/)),
    ...(await loose(dir)),
    ...(await refLocks(dir)),
  ]
  await Promise.all(paths.map((path) => rm(path, { recursive: true, force: true })))
}

async function matching(folder: string, pattern: RegExp): Promise<readonly string[]> {
  return (await readdir(folder)).filter((name) => pattern.test(name)).map((name) => join(folder, name))
}

/** Loose objects that were being written. */
async function loose(dir: string): Promise<readonly string[]> {
  const shards = await matching(join(dir, 'objects'), /^[0-9a-f]{2}$/)
  return (await Promise.all(shards.map((shard) => matching(shard, /^tmp_obj_/)))).flat()
}

async function refLocks(dir: string): Promise<readonly string[]> {
  const refs = await readdir(join(dir, 'refs'), { recursive: true, withFileTypes: true })
  return refs
    .filter((entry) => entry.isFile() && entry.name.endsWith('.lock'))
    .map((entry) => join(entry.parentPath, entry.name))
}
