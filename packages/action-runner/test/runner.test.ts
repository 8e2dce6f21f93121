import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ActionError, type Action, type ActionErrorCode } from '../src/index.ts'
import { linesOf, until, world, type World } from './worlds.ts'

let here: World
beforeEach(async () => {
  here = await world()
})
afterEach(() => here.remove())

async function refusal(promise: Promise<unknown>): Promise<ActionError> {
  try {
    await promise
  } catch (error) {
    if (error instanceof ActionError) return error
    throw error
  }
  throw new Error('it was accepted')
}
const codeOf = async (promise: Promise<unknown>): Promise<ActionErrorCode> => (await refusal(promise)).code

describe('a run', () => {
  test('gives exit code, both outputs, the result tree and what changed', async () => {
    const tree = here.tree({ 'in.txt': 'in', 'gone.txt': 'g', 'dir/same.txt': 's', 'run.sh': 'x', 'a-file': 'f' })
    const result = await here.sh(
      'cat in.txt; echo oops >&2; rm gone.txt; echo new >dir/new.txt; chmod +x run.sh; echo more >>in.txt; rm a-file; mkdir a-file hollow; echo 1 >a-file/x; exit 3',
      { tree },
    )
    expect(result).toMatchObject({
      exitCode: 3,
      signal: null,
      timedOut: false,
      cancelled: false,
      cached: false,
      stdout: { text: 'in', bytes: 2, cutBytes: 0 },
      stderr: { text: 'oops\n', bytes: 5, cutBytes: 0 },
      leftRunning: { count: 0, names: [] },
    })
    expect(result.changed).toEqual([
      { path: 'a-file', change: 'removed' },
      { path: 'a-file/x', change: 'added' },
      { path: 'dir/new.txt', change: 'added' },
      { path: 'gone.txt', change: 'removed' },
      { path: 'hollow', change: 'added' },
      { path: 'in.txt', change: 'changed' },
      { path: 'run.sh', change: 'mode' },
    ])
    expect(here.read(result.tree, 'dir/new.txt')).toBe('new\n')
    expect(Buffer.from(here.store.readBlob(result.stdout.blob)).toString()).toBe('in')
    expect(Object.values(result.timing).every((ms) => ms >= 0)).toBe(true)
  })

  test('names the files of a directory that was emptied or filled, not the directory', async () => {
    const base = here.tree({ 'full/a': '1', 'full/b': '2' })
    const tree = here.store.editTree(base, [{ path: 'hollow', set: { kind: 'directory', id: here.store.emptyTree } }])
    const result = await here.sh('rm full/*; echo 1 >hollow/c', { tree })
    expect(result.changed).toEqual([
      { path: 'full/a', change: 'removed' },
      { path: 'full/b', change: 'removed' },
      { path: 'hollow/c', change: 'added' },
    ])
  })

  test('that changes nothing gives its input tree', async () => {
    const tree = here.tree({ a: '1', 'b/c': '2', 'x*': '#!/bin/sh\n' })
    const result = await here.sh('cat a', { tree })
    expect([result.tree, result.changed]).toEqual([tree, []])
  })

  test('notices a change of the same size whose time was put back', async () => {
    const tree = here.tree({ a: 'one' })
    const result = await here.sh('touch -r a stamp; printf two >a; touch -r stamp a; rm stamp', { tree })
    expect(here.read(result.tree, 'a')).toBe('two')
  })

  test('tells a signal from an exit code', async () => {
    expect(await here.sh('kill -SEGV $$')).toMatchObject({ exitCode: null, signal: 'SIGSEGV' })
  })

  test('sees a closed environment: constants, its own folders, what the caller gave, and nothing of the server', async () => {
    process.env['REVE_TEST_SENTINEL'] = 'sentinel-4711'
    try {
      const result = await here.sh(
        'env | sort; test -d "$HOME" && test -d "$TMPDIR" && touch "$HOME/x" "$TMPDIR/y" && echo writable; ls -A',
        { env: { GREETING: 'hi there', LANG: 'C' } },
      )
      const lines = result.stdout.text.trim().split('\n')
      const names = lines.filter((line) => line.includes('=')).map((line) => line.slice(0, line.indexOf('=')))
      expect(names.filter((name) => !['_', 'SHLVL', 'OLDPWD'].includes(name))).toEqual([
        'GREETING',
        'HOME',
        'LANG',
        'LOGNAME',
        'PATH',
        'PWD',
        'SHELL',
        'TERM',
        'TMPDIR',
        'TZ',
        'USER',
      ])
      expect(lines).toEqual(expect.arrayContaining(['GREETING=hi there', 'LANG=C', 'writable']))
      expect(result.stdout.text).not.toContain('sentinel-4711')
      expect(result.changed).toEqual([])
    } finally {
      delete process.env['REVE_TEST_SENTINEL']
    }
  })

  test('inherits no file of the server, and can open its output again', async () => {
    // What the process of the tests itself was started with is passed on by Node; nothing that was opened since is.
    const plain = spawnSync('ls', ['/proc/self/fd'], { encoding: 'utf8' }).stdout
    const result = await here.sh('ls /proc/self/fd; echo again >/dev/stdout; echo other >/dev/stderr')
    expect(result.stdout.text).toBe(`${plain}again\n`)
    expect(result.stderr.text).toBe('other\n')
  })

  test('starts in cwd, which has to be a directory of the tree', async () => {
    const base = here.tree({ 'a/b/x': '1', f: '2' })
    const tree = here.store.editTree(base, [
      { path: 'out', set: { kind: 'symlink', id: here.store.putBlob(Buffer.from('/etc')) } },
    ])
    expect((await here.sh('ls; basename "$PWD"', { tree, cwd: 'a/b' })).stdout.text).toBe('x\nb\n')
    expect(await codeOf(here.sh('true', { tree, cwd: 'out' }))).toBe('bad_action')
    expect(await codeOf(here.sh('true', { tree, cwd: 'f' }))).toBe('bad_action')
    expect(await codeOf(here.sh('true', { tree, cwd: 'nothing' }))).toBe('bad_action')
  })

  test('shows its output as it comes', async () => {
    const seen: string[] = []
    const running = here.sh(
      `echo first; while [ ! -e ${here.path('go')} ]; do sleep 0.02; done; echo second`,
      {},
      { onOutput: (stream, chunk) => seen.push(`${stream}: ${Buffer.from(chunk).toString()}`) },
    )
    await until('the first line comes', () => seen.join('').includes('first'))
    writeFileSync(here.path('go'), '')
    await running
    expect(seen).toEqual(['stdout: first\n', 'stdout: second\n'])
  })

  test('holds a flood of output in a file, not in memory', async () => {
    const before = process.memoryUsage().rss
    let most = 0
    const result = await here.sh(
      'head -c 200000000 /dev/zero | tr "\\0" x; echo; echo the end',
      {},
      { onOutput: () => (most = Math.max(most, process.memoryUsage().rss)) },
    )
    expect(result.stdout.bytes).toBe(200_000_009)
    expect(result.stdout.text.length).toBeLessThan(40_000)
    expect(result.stdout.text.endsWith('x\nthe end\n')).toBe(true)
    expect(here.store.blobSize(result.stdout.blob)).toBe(200_000_009)
    expect(most - before).toBeLessThan(150 * 1024 * 1024)
  })

  test('lists what a tree cannot hold, keeps links and tells which leave the tree', async () => {
    const result = await here.sh(
      'mkfifo pipe; ln -s /etc/passwd out; ln -s ../../up up; ln -s here in; echo 1 >here; mkdir -p .git sub/.git; echo x >.git/config; echo y >sub/.git/z',
    )
    expect(result.notCaptured.map((entry) => entry.path).sort()).toEqual(['.git', 'pipe', 'sub/.git'])
    expect(result.linksLeaving.map((link) => [link.path, link.target])).toEqual([
      ['out', '/etc/passwd'],
      ['up', '../../up'],
    ])
    expect(here.store.lookup(result.tree, 'in')?.kind).toBe('symlink')
    expect(here.store.readTree(result.tree).map((entry) => Buffer.from(entry.name).toString())).toEqual([
      'here',
      'in',
      'out',
      'up',
    ])
  })

  test('ends with its command, not with what it left in the background, which is killed and told', async () => {
    const result = await here.sh('sleep 4711 & echo done')
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: { text: 'done\n' },
      leftRunning: { count: 1, names: ['sleep'] },
    })
  })

  test('keeps names of any bytes', async () => {
    const result = await here.sh(`printf x >"$(printf 'caf\\351')"`)
    expect(result.changed).toEqual([{ path: 'caf\\xe9', change: 'added' }])
    const again = await here.sh('ls | od -An -tx1', { tree: result.tree })
    expect(again.stdout.text.trim()).toBe('63 61 66 e9 0a')
  })

  test('leaves its slot nothing, however it ended', async () => {
    await here.sh('mkdir -p a/b; echo 1 >a/b/c; chmod 000 a/b; chmod 000 a; exit 1')
    await here.sh('sleep 4711', { timeoutS: 0.2 })
    await refusal(here.sh('true', { argv: ['no-such-program'] }))
    expect(readdirSync(here.slots)).toEqual([])
    expect(statSync(here.slots).mode & 0o777).toBe(0o700)
  })
})

describe('tool caches', () => {
  test('are left out of the result at any depth, unless the input tracks them', async () => {
    const tree = here.tree({ 'target/tracked.txt': 'kept', 'src/a.py': '1' })
    const result = await here.sh(
      'mkdir -p src/__pycache__ sub/.pytest_cache; echo 1 >src/__pycache__/a.pyc; echo 1 >sub/.pytest_cache/x; rm -r target; mkdir target; echo new >target/out; echo file >.tox',
      { tree },
    )
    expect(result.changed).toEqual([{ path: '.tox', change: 'added' }])
    expect(here.read(result.tree, 'target/tracked.txt')).toBe('kept')
  })

  test('gitignore leaves out what is ignored and not tracked, only when asked', async () => {
    const tree = here.tree({ '.gitignore': '*.log\n/dist/\n', 'kept.log': 'tracked' })
    const script = 'echo 1 >new.log; mkdir dist; echo 1 >dist/x; echo more >>kept.log; echo 1 >plain'
    const asked = await here.sh(script, { tree, gitignore: true })
    expect(asked.changed.map((change) => change.path)).toEqual(['kept.log', 'plain'])
    const not = await here.sh(script, { tree })
    expect(not.changed.map((change) => change.path)).toEqual(['dist/x', 'kept.log', 'new.log', 'plain'])
    expect(not.key).not.toBe(asked.key)
  })
})

describe('known results', () => {
  const counted = (): string => `echo run >>${here.path('runs')}`
  const runs = (): number => linesOf(here.path('runs')).length

  test('are answered without a run, also failed ones, and also by another runner on the same store', async () => {
    const first = await here.sh(`${counted()}; echo out; echo 1 >f; exit 7`)
    const second = await here.sh(`${counted()}; echo out; echo 1 >f; exit 7`)
    expect(runs()).toBe(1)
    expect(first.cached).toBe(false)
    expect(second).toEqual({ ...first, cached: { since: expect.stringMatching(/^\d{4}-.*Z$/) } })
    const other = await world({ store: here.store, slotsDir: here.path('slots2') })
    const third = await other.runner.run({
      tree: here.store.emptyTree,
      argv: ['sh', '-c', `${counted()}; echo out; echo 1 >f; exit 7`],
    })
    expect([third.cached === false, runs()]).toEqual([false, 1])
    await other.remove()
  })

  test('differ with what changes a result, not with what does not', async () => {
    const action: Action = { tree: here.store.emptyTree, argv: ['true'] }
    const key = (extra: Partial<Action> = {}): string => here.runner.key({ ...action, ...extra })
    expect(key({ timeoutS: 5, fresh: true, cwd: '.', sandbox: 'local' })).toBe(key())
    const cache = { name: 'a', path: 'c' }
    expect(key({ caches: [cache] })).toBe(key({ caches: [{ name: 'b', path: './c/', mode: 'shared' }] }))
    const others = [
      {},
      { caches: [cache] },
      { env: { A: '1' } },
      { network: true },
      { gitignore: true },
      { argv: ['false'] },
      { cwd: 'a' },
    ].map((extra) => key(extra))
    expect(new Set(others).size).toBe(others.length)
    const elsewhere = await world({ hostFingerprint: 'another host' })
    expect(elsewhere.runner.key(action)).not.toBe(key())
    await elsewhere.remove()
  })

  test('are made again by fresh, and replaced', async () => {
    const script = `${counted()}; wc -l <${here.path('runs')} | tr -d ' '`
    expect((await here.sh(script)).stdout.text).toBe('1\n')
    expect((await here.sh(script, { fresh: true })).stdout.text).toBe('2\n')
    expect((await here.sh(script)).stdout.text).toBe('2\n')
    expect(runs()).toBe(2)
  })

  test('are not kept of runs that timed out, were cancelled, were killed, or never began', async () => {
    for (const script of [`${counted()}; sleep 4711`, `${counted()}; kill -KILL $$`]) {
      await here.sh(script, { timeoutS: 0.5 })
      await here.sh(script, { timeoutS: 0.5 })
    }
    expect(runs()).toBe(4)
    const stop = new AbortController()
    const cancelled = await here.sh(
      `${counted()}; echo begun; sleep 4711`,
      {},
      { signal: stop.signal, onOutput: () => stop.abort() },
    )
    expect(cancelled).toMatchObject({
      cancelled: true,
      timedOut: false,
      stdout: { text: 'begun\n' },
      tree: here.store.emptyTree,
    })
    const missing = await refusal(here.sh('true', { argv: ['no-such-program'] }))
    expect([missing.code, missing.message]).toEqual(['setup_failed', expect.stringMatching(/no-such-program/)])
    const tree = here.tree({ 'bad*': '#!/no/such/interpreter\n', plain: 'x' })
    expect(await codeOf(here.sh('', { tree, argv: ['./bad'] }))).toBe('setup_failed')
    expect(await codeOf(here.sh('', { tree, argv: ['./plain'] }))).toBe('setup_failed')
    expect((await here.sh('exit 127')).exitCode).toBe(127)
  })

  test('whose objects are gone are no results', async () => {
    const first = await here.sh(`${counted()}; echo 1 >f`)
    here.store.transaction((db) =>
      db
        .prepare('UPDATE actions_result SET record = replace(record, ?, ?) WHERE key = ?')
        .run(first.tree, 'f'.repeat(64), first.key),
    )
    expect((await here.sh(`${counted()}; echo 1 >f`)).cached).toBe(false)
    here.store.transaction((db) => db.prepare("UPDATE actions_result SET record = '{' WHERE key = ?").run(first.key))
    expect((await here.sh(`${counted()}; echo 1 >f`)).cached).toBe(false)
    expect((await here.sh(`${counted()}; echo 1 >f`)).cached).not.toBe(false)
    expect(runs()).toBe(3)
  })

  test('identical runs at the same time are one, which goes on while one of them waits', async () => {
    const script = `${counted()}; while [ ! -e ${here.path('go')} ]; do sleep 0.02; done; echo all`
    const leaver = new AbortController()
    const leaving = codeOf(here.sh(script, {}, { signal: leaver.signal }))
    const staying = [here.sh(script), here.sh(script)]
    const longer = here.sh(script, { timeoutS: 60 })
    await until('both runs began', () => runs() === 2)
    leaver.abort()
    expect(await leaving).toBe('cancelled')
    writeFileSync(here.path('go'), '')
    expect((await Promise.all([...staying, longer])).map((result) => result.stdout.text)).toEqual([
      'all\n',
      'all\n',
      'all\n',
    ])
    expect(runs()).toBe(2)
  })
})

describe('named caches', () => {
  const cache = { name: 'tool', path: 'deep/cache' }

  test('persist from run to run and are no part of the result', async () => {
    const script = 'echo line >>deep/cache/log; wc -l <deep/cache/log | tr -d " "; echo r >result'
    const first = await here.sh(script, { caches: [cache] })
    const second = await here.sh(script, { caches: [cache], fresh: true })
    expect([first.stdout.text, second.stdout.text]).toEqual(['1\n', '2\n'])
    expect(second.changed).toEqual([{ path: 'result', change: 'added' }])
  })

  test('hide what the tree has at their path, which is carried over', async () => {
    const tree = here.tree({ 'deep/cache/tracked': 't', 'deep/x': 'x' })
    const result = await here.sh('ls deep/cache; echo 1 >deep/cache/new', { tree, caches: [cache] })
    expect([result.stdout.text, result.tree, result.changed]).toEqual(['', tree, []])
    expect((await here.sh('ls deep/cache', { tree, caches: [cache] })).stdout.text).toBe('new\n')
  })

  test('are one run at a time', async () => {
    const script = (n: number): string => `echo ${n}; mkdir deep/cache/lock || exit 9; sleep 0.1; rmdir deep/cache/lock`
    const results = await Promise.all([1, 2, 3].map((n) => here.sh(script(n), { caches: [cache] })))
    expect(results.map((result) => result.exitCode)).toEqual([0, 0, 0])
  })

  test('are no part of the result even when the action puts something else in their place', async () => {
    const tree = here.tree({ 'deep/cache/tracked': 't', 'deep/x': 'x' })
    const replaced = await here.sh('rm -r deep/cache; echo file >deep/cache', { tree, caches: [cache] })
    expect(replaced.tree).toBe(tree)
    const gone = await here.sh('rm -r deep; echo file >deep', { tree, caches: [cache] })
    expect(gone.changed).toEqual([
      { path: 'deep', change: 'added' },
      { path: 'deep/cache/tracked', change: 'removed' },
      { path: 'deep/x', change: 'removed' },
    ])
  })

  test('cannot be led elsewhere by links', async () => {
    mkdirSync(here.path('elsewhere'))
    const tree = here.store.editTree(here.store.emptyTree, [
      { path: 'deep', set: { kind: 'symlink', id: here.store.putBlob(Buffer.from(here.path('elsewhere'))) } },
    ])
    expect(await codeOf(here.sh('true', { tree, caches: [cache] }))).toBe('bad_action')
    await here.sh('echo secret >deep/cache/x', { caches: [cache] })
    await here.sh(`rm -r deep; ln -s ${here.path('elsewhere')} deep; mkdir ${here.path('elsewhere/cache')}`, {
      caches: [cache],
    })
    expect((await here.sh('ls -A deep/cache', { caches: [cache], fresh: true })).stdout.text).toBe('')
    expect(readdirSync(here.path('elsewhere'))).toEqual(['cache'])
  })

  test('survive a run that timed out', async () => {
    await here.sh('echo 1 >deep/cache/x; sleep 4711', { caches: [cache], timeoutS: 0.5 })
    expect((await here.sh('ls deep/cache', { caches: [cache] })).stdout.text).toBe('x\n')
  })
})

describe('a runner', () => {
  test('refuses sandboxes that it does not carry, and images on the host', async () => {
    for (const sandbox of ['bwrap', 'docker', 'container', 'microvm'] as const) {
      const error = await refusal(here.sh('true', { sandbox }))
      expect([error.code, error.message]).toEqual(['sandbox_unavailable', expect.stringMatching(/carries: local/)])
    }
    expect(await codeOf(here.sh('true', { image: 'debian' }))).toBe('bad_action')
    expect(await codeOf(here.sh('true', { cwd: '..' }))).toBe('bad_action')
  })

  test('says that actions run as its own user', () => {
    expect(here.runner.isolation()).toMatchObject({ sandbox: 'local', contained: false, user: null, network: 'open' })
    expect(here.runner.isolation().warnings.join(' ')).toMatch(/run as the user of this server/)
  })

  test('refuses an action when the disk has too little free', async () => {
    const full = await world({ minFreeBytes: Number.MAX_SAFE_INTEGER })
    expect(await codeOf(full.sh('true'))).toBe('disk_full')
    expect(readdirSync(full.slots)).toEqual([])
    await full.remove()
  })

  test('runs no more at once than it may, in order', async () => {
    const narrow = await world({ maxActions: 1 })
    const log = narrow.path('log')
    await Promise.all([1, 2, 3].map((n) => narrow.sh(`echo in ${n} >>${log}; sleep 0.1; echo out ${n} >>${log}`)))
    expect(linesOf(log)).toEqual(['in 1', 'out 1', 'in 2', 'out 2', 'in 3', 'out 3'])
    const stop = new AbortController()
    const first = narrow.sh(`echo held >>${log}; while [ ! -e ${narrow.path('go')} ]; do sleep 0.02; done`)
    await until('the first one began', () => linesOf(log).includes('held'))
    const waiting = codeOf(narrow.sh('echo second', {}, { signal: stop.signal }))
    stop.abort()
    expect(await waiting).toBe('cancelled')
    writeFileSync(narrow.path('go'), '')
    expect((await first).exitCode).toBe(0)
    await narrow.remove()
  })

  test('that is closed has stopped what ran, and refuses the next', async () => {
    const marker = here.path('begun')
    const running = here.sh(`echo 1 >${marker}; sleep 4711`)
    await until('it began', () => linesOf(marker).length === 1)
    await here.runner.close()
    expect(await running).toMatchObject({ cancelled: true })
    expect(await codeOf(here.sh('true'))).toBe('closed')
    expect(readdirSync(here.slots)).toEqual([])
  })

  test('throws for a tree that is not there', async () => {
    await expect(here.sh('true', { tree: 'e'.repeat(64) })).rejects.toMatchObject({ code: 'not_found' })
    expect(readdirSync(here.slots)).toEqual([])
  })
})
