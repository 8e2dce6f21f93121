import { spawn, type ChildProcess } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openStore } from '@reve/content-store'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createGitBridge } from '../src/index.ts'
import { processesOf, remaining, showsProcesses } from './processes.ts'
import { git, repository, write, commitAll, world, type World } from './repositories.ts'

const worker = fileURLToPath(new URL('crash-worker.ts', import.meta.url))
const actor = 'tester'

let here: World
beforeEach(async () => {
  here = await world()
})
afterEach(() => here.remove())

function start(root: string, ...args: readonly string[]): ChildProcess {
  return spawn(process.execPath, ['--conditions=@reve/source', worker, root, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
}

/** Kills the worker `moreMs` after it has said so many lines; gives the whole lines that it said. */
async function runAndKill(root: string, lines: number, moreMs: number): Promise<readonly string[]> {
  const child = start(root, 'loop')
  let said = ''
  const closed = new Promise<NodeJS.Signals | null>(
    (resolve) => void child.once('close', (_, signal) => resolve(signal)),
  )
  await Promise.race([
    closed,
    new Promise<void>((resolve) => {
      child.stdout?.setEncoding('utf8').on('data', (text: string) => {
        said += text
        if (said.split('\n').length > lines) resolve()
      })
    }),
  ])
  await sleep(moreMs)
  child.kill('SIGKILL')
  expect(await closed).toBe('SIGKILL')
  return said.split('\n').slice(0, -1)
}

describe('killed at any instant', () => {
  test(
    'clones and store are whole, what was answered is there, and everything works again',
    { timeout: 300_000 },
    async () => {
      const root = here.path('crash')
      const files = Object.fromEntries(
        Array.from({ length: 300 }, (_, i) => [`d${i % 20}/f${i}`, `content ${i}\n`.repeat(i)]),
      )
      const source = repository(join(root, 'source'), files)
      git(root, 'clone', '--quiet', '--bare', 'source', 'remote.git')
      const repos = join(root, 'repos')
      const kills = Number(process.env['GIT_BRIDGE_KILLS'] ?? 5)
      for (let round = 0; round < kills; round += 1) {
        write(source, { changing: String(round) })
        commitAll(source, `round ${round}`)
        const said = await runAndKill(root, round % 6, (round * 37) % 190)
        if (showsProcesses) expect(await remaining(repos)).toEqual([])
        const store = await openStore(join(root, 'store'))
        const bridge = createGitBridge({ store, reposDir: repos, identity: { name: 'kc', email: 'kc@example.com' } })
        for (const line of said) {
          const [verb, name = '', commit = ''] = line.split(' ')
          if (verb === 'imported') expect(store.refs.find(name)).not.toBe(undefined)
          else if (verb === 'exported') git(join(repos, 'remote.git'), 'merge-base', '--is-ancestor', commit, name)
          else git(join(root, 'remote.git'), 'merge-base', '--is-ancestor', commit, name)
        }
        // The next verb finds nothing in its way.
        const { tree } = await bridge.import({ src: join(root, 'remote.git'), name: 'remote', actor })
        const exported = await bridge.export({
          name: 'remote',
          tree,
          branch: `after-${round}`,
          message: 'after',
          actor,
        })
        expect((await bridge.push({ name: 'remote', branch: `after-${round}`, actor })).commit).toBe(exported.commit)
        const left = readdirSync(repos).filter((name) => name !== '.lock' && !name.endsWith('.git'))
        expect(left).toEqual([])
        for (const name of readdirSync(repos).filter((entry) => entry.endsWith('.git')))
          expect([name, git(join(repos, name), 'fsck', '--strict', '--no-dangling')]).toEqual([name, ''])
        // Every ref of the store that was imported has its clone.
        for (const ref of store.refs.list())
          expect([ref.name, existsSync(join(repos, `${ref.name}.git`))]).toEqual([ref.name, true])
        expect((await store.fsck()).problems).toEqual([])
        store.close()
      }
    },
  )

  test.skipIf(!showsProcesses)('a git that waits for the other side dies with its bridge', async () => {
    const asked = Promise.withResolvers<void>()
    const server = createServer(() => asked.resolve())
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    const port = typeof address === 'object' ? address?.port : undefined
    const root = here.path('other')
    mkdirSync(root)
    const child = start(root, 'import', `http://127.0.0.1:${port}/x.git`)
    await asked.promise
    expect(processesOf(join(root, 'repos')).length).toBeGreaterThan(0)
    child.kill('SIGKILL')
    expect(await remaining(join(root, 'repos'))).toEqual([])
    server.closeAllConnections()
    server.close()
  })
})

describe('called off', () => {
  test('while the other side does not answer: no process, no clone, no ref', async () => {
    const asked = Promise.withResolvers<void>()
    const server = createServer(() => asked.resolve())
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    const port = typeof address === 'object' ? address?.port : undefined
    const stop = new AbortController()
    const src = `http://127.0.0.1:${port}/x.git`
    const importing = here.bridge.import({ src, name: 'x', actor, signal: stop.signal })
    await asked.promise
    // One that waits for its turn is gone at once.
    const waiting = here.bridge.import({ src, name: 'x', actor, signal: stop.signal })
    const both = Promise.allSettled([importing, waiting])
    stop.abort()
    expect(await both).toMatchObject([{ reason: { code: 'cancelled' } }, { reason: { code: 'cancelled' } }])
    if (showsProcesses) expect(processesOf(here.repos)).toEqual([])
    expect(readdirSync(here.repos)).toEqual(['.lock'])
    expect(here.store.refs.list()).toEqual([])
    server.closeAllConnections()
    server.close()
  })

  test.each(['receiving', 'reading'] as const)('while it is %s: as if it had not begun', async (stage) => {
    const files = Object.fromEntries(Array.from({ length: 1_500 }, (_, i) => [`d${i % 7}/f${i}`, `${i}`]))
    const src = repository(here.path('src'), files)
    const stop = new AbortController()
    const importing = here.bridge.import({
      src,
      name: 'x',
      actor,
      signal: stop.signal,
      onProgress: (progress) => {
        if (progress.stage === stage) stop.abort()
      },
    })
    await expect(importing).rejects.toMatchObject({ code: 'cancelled' })
    if (showsProcesses) expect(processesOf(here.repos)).toEqual([])
    expect(readdirSync(here.repos)).toEqual(['.lock'])
    expect(here.store.refs.list()).toEqual([])
    expect((await here.bridge.import({ src, name: 'x', actor })).commit).toBe(git(src, 'rev-parse', 'HEAD'))
  })

  test('an export leaves the branch where it was', async () => {
    const src = repository(here.path('src'))
    const { tree, commit } = await here.bridge.import({ src, name: 'x', actor })
    const edited = here.store.editTree(
      tree,
      Array.from({ length: 1_500 }, (_, i) => ({
        path: `many/${i}`,
        set: { kind: 'file' as const, id: here.store.putBlob(Buffer.from(`${i}`)) },
      })),
    )
    const stop = new AbortController()
    const exporting = here.bridge.export({
      name: 'x',
      tree: edited,
      branch: 'main',
      message: 'many',
      actor,
      signal: stop.signal,
      onProgress: () => stop.abort(),
    })
    await expect(exporting).rejects.toMatchObject({ code: 'cancelled' })
    expect(git(join(here.repos, 'x.git'), 'rev-parse', 'main')).toBe(commit)
    expect(git(join(here.repos, 'x.git'), 'fsck', '--strict')).toBe('')
  })
})
