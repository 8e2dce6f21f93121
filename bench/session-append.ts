import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createSession, type SessionLog } from '@reve/session-log'
import type { Comparison } from './measure.ts'

const payload = { message: { role: 'user', content: [{ type: 'text', text: 'x'.repeat(400) }] } }
/** The bytes of one append. */
const line = Buffer.from(
  `${JSON.stringify({ kind: 'entry', id: 'e_00000000000000000000', seq: 1000, ts: new Date(0).toISOString(), lane: 'main', type: 'message', parentId: 'e_00000000000000000000', ...payload })}\n`,
)

async function withFile(use: (file: string) => Promise<void>): Promise<void> {
  const file = join(await mkdtemp(join(tmpdir(), 'bench-')), 'session.jsonl')
  try {
    await use(file)
  } finally {
    await rm(dirname(file), { recursive: true })
  }
}

const withLog = (
  use: (append: () => ReturnType<SessionLog['append']>) => Promise<void>,
  durability: 'flush' | 'fsync',
) =>
  withFile(async (file) => {
    const log = await createSession(file, { cwd: 'workspace', durability })
    await use(() => log.append([{ kind: 'entry', lane: 'main', type: 'message', payload }]))
    await log.close()
  })

const withHandle = (use: (handle: FileHandle) => Promise<void>) =>
  withFile(async (file) => {
    await using handle = await open(file, 'a')
    await use(handle)
  })

const repeat = async (times: number, work: () => Promise<unknown>) => {
  for (let index = 0; index < times; index++) await work()
}

/** Appends to a session against a bare write of the same bytes. */
export const comparisons: readonly Comparison[] = [
  {
    name: '2000 appends to a session, one by one',
    peer: 'a write loop',
    ours: () => withLog((append) => repeat(2000, append), 'flush'),
    theirs: () => withHandle((handle) => repeat(2000, () => handle.write(line))),
  },
  {
    name: '6400 appends, 64 at a time',
    peer: 'as many writes at a time',
    ours: () => withLog((append) => repeat(100, () => Promise.all(Array.from({ length: 64 }, append))), 'flush'),
    theirs: () =>
      withHandle((handle) => repeat(100, () => Promise.all(Array.from({ length: 64 }, () => handle.write(line))))),
  },
  {
    name: '200 appends with fsync, one by one',
    peer: 'a loop of write and fdatasync',
    ours: () => withLog((append) => repeat(200, append), 'fsync'),
    theirs: () =>
      withHandle((handle) =>
        repeat(200, async () => {
          await handle.write(line)
          await handle.datasync()
        }),
      ),
  },
]
