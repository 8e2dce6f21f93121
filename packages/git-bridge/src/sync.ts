import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'

/** Makes the names in a folder last through a power cut. */
export async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Makes a new clone last: git has synced packs and references, but neither its settings nor the folders. */
export async function syncClone(dir: string): Promise<void> {
  const refs = (await readdir(join(dir, 'refs'), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name))
  const inner = ['HEAD', 'config', 'refs', join('objects', 'pack'), 'objects'].map((name) => join(dir, name))
  for (const path of [...refs, ...inner, dir]) await syncFolder(path)
}
