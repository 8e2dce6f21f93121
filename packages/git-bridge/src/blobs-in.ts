import type { Store } from '@reve/content-store'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { GitSession } from './git.ts'
import { isLfsPointer, type Oid } from './git-object.ts'
import type { ObjectMap } from './object-map.ts'
import type { ObjectReader } from './object-reader.ts'

/** Bytes of small blobs that are put into the store in one transaction, and how many. */
const batchBytes = 2 * 1024 * 1024
const batchCount = 500
/** Questions to the map between two turns of other work. */
const lookupsAtOnce = 1_000
/** A blob of this size or more is streamed into the store by itself. */
const streamedBytes = 2 * 1024 * 1024

/** A blob in the store. `pointer`: its bytes stand for a file that Git LFS keeps elsewhere. */
export type ImportedBlob = { readonly id: string; readonly pointer: boolean }

/** Puts blobs into the store, each once; those that were imported before are not read. */
export async function importBlobs(
  git: GitSession,
  reader: ObjectReader,
  oids: readonly Oid[],
  store: Store,
  map: ObjectMap,
): Promise<ReadonlyMap<Oid, ImportedBlob>> {
  const blobs = new Map<Oid, ImportedBlob>()
  const missing: Oid[] = []
  for (const [index, oid] of oids.entries()) {
    const known = map.byOid(oid)
    if (known === undefined) missing.push(oid)
    else blobs.set(oid, { id: known.id, pointer: false })
    if (index % lookupsAtOnce === 0) await nextTurn()
  }
  let batch: { readonly oid: Oid; readonly bytes: Buffer }[] = []
  let held = 0
  const keep = (oid: Oid, id: string, pointer: boolean): void => {
    blobs.set(oid, { id, pointer })
    if (!pointer) map.put({ oid, id, height: 0 })
  }
  const flush = async (): Promise<void> => {
    const ready = batch
    batch = []
    held = 0
    store.transaction(() => {
      for (const { oid, bytes } of ready) keep(oid, store.putBlob(bytes), isLfsPointer(bytes))
    })
    git.report({ stage: 'reading', done: blobs.size, total: oids.length })
    // Other work of this process has its turn.
    await nextTurn()
    git.checkSignal()
  }
  await reader.each('blob', missing, async (oid, size, bytes) => {
    if (size >= streamedBytes) {
      const id = await store.putBlobStream(bytes.pieces(size))
      store.transaction(() => keep(oid, id, false))
      return
    }
    batch.push({ oid, bytes: await bytes.exactly(size) })
    held += size
    if (held >= batchBytes || batch.length >= batchCount) await flush()
  })
  if (missing.length > 0) await flush()
  return blobs
}
