import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { openStore } from '../src/index.ts'
import { refusalOf, temporaryFolder, temporaryStore } from './support.ts'

const writer = fileURLToPath(new URL('crash-writer.ts', import.meta.url))

/** Runs the writer until it has acknowledged some moves, kills it after a while more, and gives the last acknowledged one. */
function runAndKill(
  root: string,
  folder: string,
  afterLines: number,
  moreMs: number,
): Promise<{ readonly rev: number; readonly tree: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--conditions=@reve/source', writer, root, folder], {
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let out = ''
    let err = ''
    let killing = false
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text
      if (killing || out.split('\n').length <= afterLines) return
      killing = true
      setTimeout(() => child.kill('SIGKILL'), moreMs)
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text))
    child.on('error', reject)
    child.on('close', (_code, signal) => {
      // The last line may be torn: a move counts when its line is whole.
      const [rev, tree] = out.split('\n').slice(0, -1).at(-1)?.split(' ') ?? []
      if (signal !== 'SIGKILL' || rev === undefined || tree === undefined)
        reject(new Error(`the writer ended by itself: ${err}`))
      else resolve({ rev: Number(rev), tree })
    })
  })
}

test(
  'killed at any instant: the store is whole and every acknowledged move is there',
  { timeout: 300_000 },
  async () => {
    const root = join(temporaryFolder(), 'kc')
    const folder = temporaryFolder()
    const kills = Number(process.env['CONTENT_STORE_KILLS'] ?? 20)
    for (let round = 0; round < kills; round++) {
      const last = await runAndKill(root, folder, 1 + (round % 5), (round * 7) % 40)
      const store = await temporaryStore({ root })
      const found = store.refs.get('main')
      expect(found.rev).toBeGreaterThanOrEqual(last.rev)
      expect(store.refs.history('main', 1000).find((move) => move.rev === last.rev)?.to).toBe(last.tree)
      const { problems } = await store.fsck()
      expect(problems).toEqual([])
      store.close()
    }
  },
)

test('a store that another process owns is refused with its pid, until that process is dead', async () => {
  const root = join(temporaryFolder(), 'kc')
  const child = spawn(process.execPath, ['--conditions=@reve/source', writer, root, temporaryFolder()], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = new Promise((resolve) => child.once('close', resolve))
  await new Promise((resolve) => child.stdout.once('data', resolve))
  const error = await refusalOf('locked', openStore(root))
  expect(error.details.pid).toBe(child.pid)
  child.stdout.resume()
  child.kill('SIGKILL')
  await ended
  const store = await temporaryStore({ root })
  expect(store.refs.get('main').rev).toBeGreaterThan(1)
})
