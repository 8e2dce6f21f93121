import { constants, copyFileSync, existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Database } from './database.ts'
import { makeFolder, syncPath } from './durable.ts'
import { StoreError } from './errors.ts'
import { Pace } from './host-dir.ts'
import { failed } from './layout.ts'
import type { Objects } from './objects.ts'

export type BackupOptions = {
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((done: { readonly files: number; readonly bytes: number }) => void) | undefined
}

export type BackupReport = {
  /** Blob files that were copied; those of an earlier backup in the same folder are not copied again. */
  readonly files: number
  /** Bytes copied, the database among them. */
  readonly bytes: number
}

/**
 * Copies a store that is in use into a folder: a state that it had at one moment while this ran, opened by `openStore` as any other
 * one. A folder that holds an earlier backup of it gets what is new. Cut off, it holds the earlier one, or none.
 */
export async function backup(
  { database, objects, root }: { readonly database: Database; readonly objects: Objects; readonly root: string },
  dir: string,
  options: BackupOptions = {},
): Promise<BackupReport> {
  const pace = new Pace(options.signal)
  const file = join(dir, 'kc.db')
  try {
    makeFolder(dir)
    refuseOthers(dir)
    const draft = `${file}.new`
    // A journal of a copy that was cut off would be taken for one of this copy.
    for (const left of [draft, `${draft}-journal`]) rmSync(left, { force: true })
    // The rows of one moment; what they name was durable before, and never goes.
    database.backup(draft)
    let [files, bytes] = [0, statSync(draft).size]
    const folders = new Set<string>()
    for (const { id, path } of objects.files()) {
      await pace.step(4)
      const target = join(dir, 'blobs', id.slice(0, 2), id.slice(2))
      const { size } = statSync(path)
      if (existsSync(target) && statSync(target).size === size) continue
      makeFolder(dirname(target))
      copyFileSync(path, `${target}.new`, constants.COPYFILE_FICLONE)
      syncPath(`${target}.new`)
      renameSync(`${target}.new`, target)
      folders.add(dirname(target))
      files += 1
      bytes += size
      options.onProgress?.({ files, bytes })
    }
    for (const folder of folders) syncPath(folder)
    syncPath(draft)
    renameSync(draft, file)
    syncPath(dir)
    return { files, bytes }
  } catch (error) {
    throw error instanceof StoreError ? error : failed(dir === root ? root : dir, error)
  }
}

/** A folder of a backup has its files alone; one with a log beside the database is in use, or was not closed. */
function refuseOthers(dir: string): void {
  const names = readdirSync(dir)
  const other = names.find((name) => !/^(kc\.db(\.new(-journal)?)?|blobs|kc\.lock|tmp)$/.test(name))
  const isBackup =
    names.length === 0 ||
    names.some((name) => name === 'kc.db' || name === 'kc.db.new') ||
    (names.length === 1 && names[0] === 'blobs')
  if (other === undefined && isBackup) return
  throw new StoreError('exists', `${dir} holds something else than a backup: ${other ?? names[0] ?? ''}`, {
    path: dir,
    hint: 'give a new folder, or the one of an earlier backup that nobody has open',
  })
}
