import { mkdtemp, open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createSession } from '@reve/session-log'
import type { Comparison } from './measure.ts'

const appends = 2000
const payload = { message: { role: 'user', content: [{ type: 'text', text: 'x'.repeat(400) }] } }
const file = async (name: string): Promise<string> => join(await mkdtemp(join(tmpdir(), 'bench-')), name)

/** Appends to a session, one after the other and together, against a bare write of the same bytes. */
export const comparisons: readonly Comparison[] = [
  {
    name: `${appends} appends to a session, one by one`,
    peer: 'a write loop',
    ours: async () => {
      await using log = await createSession(await file('session.jsonl'), { cwd: 'workspace' })
      for (let index = 0; index < appends; index++) {
        await log.append([{ kind: 'entry', lane: 'main', type: 'message', payload }], { durability: 'flush' })
      }
    },
    theirs: async () => {
      const handle = await open(await file('plain.jsonl'), 'a')
      const line = `${JSON.stringify({ kind: 'entry', id: 'e_00000000000000000000', seq: 1, ts: new Date(0).toISOString(), lane: 'main', type: 'message', parentId: 'e_00000000000000000000', ...payload })}\n`
      for (let index = 0; index < appends; index++) await handle.write(line)
      await handle.close()
    },
  },
]
