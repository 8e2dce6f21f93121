import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { agentRoot } from '@reve/agent/folder'
import { openConfined } from '@reve/base'
import { loadModels, type ModelCatalogue } from '@reve/providers'
import type { Context } from './context.ts'
import { surroundings } from './surroundings.ts'

/** Largest file that `models.yml` may name. */
const MOST_BYTES = 1 << 20

/** What `models.yml` of the current folder's agent lists; asks no provider. */
export async function modelsHere({ folder, env }: Pick<Context, 'folder' | 'env'>): Promise<ModelCatalogue> {
  const root = await agentRoot(folder)
  const confined = await openConfined(root)
  return loadModels(await readFile(join(root, 'models.yml'), 'utf8'), {
    file: 'models.yml',
    env: surroundings(env).env,
    readFile: (path) => confined.readText(path, { maxBytes: MOST_BYTES }),
  })
}
