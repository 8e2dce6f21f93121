import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { Disk, parseTrace, tracedCalls } from './power-cut.ts'
import { act, temporaryFolder, temporaryStore } from './support.ts'

const writer = fileURLToPath(new URL('crash-writer.ts', import.meta.url))

/** Whether system calls can be watched here. */
const canTrace = spawnSync('strace', ['-f', '-e', 'trace=write', '-o', '/dev/null', 'true']).status === 0
if (!canTrace) process.stderr.write('content-store: power cuts are not simulated, strace does not work here\n')

/** A sequence of numbers below 1 that is the same each time. */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

test.skipIf(!canTrace)(
  'a power cut at any instant, whatever unsynced blocks it takes: the store is whole and every answered call is there',
  { timeout: 600_000 },
  async () => {
    const cuts = Number(process.env['CONTENT_STORE_POWER_CUTS'] ?? 12)
    const seed = Number(process.env['CONTENT_STORE_SEED'] ?? 1)
    const top = temporaryFolder()
    const slots = temporaryFolder()
    const trace = join(temporaryFolder(), 'trace')
    const traced = spawnSync(
      'strace',
      ['-f', '-y', '-xx', '-s', String(1 << 26), '-e', `trace=${tracedCalls}`, '-o', trace].concat([
        process.execPath,
        '--conditions=@reve/source',
        writer,
        join(top, 'made', 'kc'),
        slots,
        '30',
      ]),
      { stdio: ['ignore', 'ignore', 'pipe'] },
    )
    expect(traced.stderr.toString()).toBe('')
    expect(traced.status).toBe(0)
    const calls = [...parseTrace(readFileSync(trace, 'utf8'))]
    const next = random(seed)
    // Any instant after the first answer, sooner the ones just after an answer.
    const first = calls.findIndex(({ name, args }) => name === 'write' && args[0]?.startsWith('1<') === true)
    const instants = new Set(Array.from({ length: cuts }, () => first + Math.floor(next() * (calls.length - first))))
    const disk = new Disk(top)
    const answered = new Map<number, string>()
    let dirty = 0
    for (const [at, call] of calls.entries()) {
      for (const line of disk.run(call).split('\n').filter(Boolean)) {
        const [rev, tree] = line.split(' ')
        answered.set(Number(rev), tree ?? '')
      }
      if (!instants.has(at)) continue
      if (disk.unsynced > 0) dirty += 1
      for (const share of [0, 1, next()]) {
        const target = join(top, '..', `${top.split('/').at(-1)}-cut`)
        rmSync(target, { recursive: true, force: true })
        mkdirSync(target)
        disk.cut(target, () => next() < share)
        const root = join(target, 'made', 'kc')
        const where = `seed ${seed}, call ${at} of ${calls.length}, share ${share}`
        expect(existsSync(root), where).toBe(true)
        const store = await temporaryStore({ root })
        const history = new Map(store.refs.history('main', 10_000).map((move) => [move.rev, move.to]))
        for (const [rev, tree] of answered) expect(history.get(rev), where).toBe(tree)
        expect((await store.fsck()).problems, where).toEqual([])
        const main = store.refs.get('main')
        const newTree = store.fs.write('main', 'after', 'still works').tree
        store.refs.move('main', { ...act, expectedTree: main.tree, newTree })
        store.close()
        rmSync(target, { recursive: true })
      }
    }
    expect(answered.size).toBeGreaterThan(20)
    expect(dirty).toBeGreaterThan(cuts / 10)
  },
)
