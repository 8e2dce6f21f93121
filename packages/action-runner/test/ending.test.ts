import { spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { ActionRunnerOptions } from '../src/index.ts'
import { escapees, linesOf, processesWith, until, world, type World } from './worlds.ts'

const isRoot = process.getuid?.() === 0
const hasProc = existsSync('/proc/self/environ')
const nobody = { uid: 65534, gid: 65534, name: 'nobody' }
const script = fileURLToPath(new URL('runner-process.ts', import.meta.url))
/** Whether a process without rights can start this Node and read the sources: then what it cannot do can be tested. */
const canBeNobody =
  isRoot &&
  spawnSync(process.execPath, ['-e', `fs.accessSync(${JSON.stringify(script)})`], { uid: 65534, gid: 65534, cwd: '/' })
    .status === 0
let here: World
const open = async (options: Partial<ActionRunnerOptions> = {}): Promise<void> => {
  here = await world(options)
  // The action user has to reach its slots, and to write what the tests look at.
  chmodSync(here.root, 0o711)
  mkdirSync(here.path('free'))
  chmodSync(here.path('free'), 0o777)
}
afterEach(async () => {
  // A test that failed leaves nothing either.
  for (const word of ['escapee', 'orphan', 'poor']) {
    for (const pid of processesWith(`${word}-${process.pid}-`)) process.kill(pid, 'SIGKILL')
  }
  await here.remove()
})

const cases: readonly (readonly [string, Partial<ActionRunnerOptions>])[] = isRoot
  ? [
      ['as the own user', {}],
      ['as another user', { actionUser: nobody }],
    ]
  : [['as the own user', {}]]

describe.skipIf(!hasProc).each(cases)(
  'four processes that ignore SIGTERM and hide, %s (needs /proc to look for them)',
  (name, options) => {
    const word = `escapee-${process.pid}-${name.replaceAll(' ', '-')}`
    beforeEach(() => open(options))

    test('are dead after a timeout, and were told', async () => {
      const result = await here.sh(escapees(`${word}-timeout`, here.path('free/ready')), { timeoutS: 3 })
      expect(result).toMatchObject({
        timedOut: true,
        exitCode: null,
        signal: 'SIGKILL',
        stdout: { text: 'all-ready\n' },
      })
      expect([...linesOf(here.path('free/ready'))].sort()).toEqual([
        'double-fork',
        'own-group',
        'own-session',
        'same-group',
      ])
      expect(result.leftRunning.count).toBeGreaterThanOrEqual(4)
      expect(processesWith(`${word}-timeout`)).toEqual([])
      expect(readdirSync(here.slots)).toEqual([])
    })

    test('are dead after a cancel', async () => {
      const stop = new AbortController()
      const result = await here.sh(
        escapees(`${word}-cancel`, here.path('free/ready')),
        {},
        { signal: stop.signal, onOutput: () => stop.abort() },
      )
      expect(result.cancelled).toBe(true)
      expect(processesWith(`${word}-cancel`)).toEqual([])
    })

    test('are dead after their command ended by itself', async () => {
      const script = escapees(`${word}-end`, here.path('free/ready')).replace(
        /while :; do sleep 1; done # \S+$/,
        'exit 4',
      )
      const result = await here.sh(script)
      expect(result).toMatchObject({ exitCode: 4, timedOut: false })
      expect(result.leftRunning.count).toBeGreaterThanOrEqual(4)
      expect(processesWith(`${word}-end`)).toEqual([])
    })
  },
)

describe('a command that obeys SIGTERM', () => {
  test('has time to end in its own way', async () => {
    await open()
    const result = await here.sh('trap "echo cleaned; exit 5" TERM; echo begun; while :; do sleep 0.05; done', {
      timeoutS: 0.5,
    })
    expect(result).toMatchObject({ timedOut: true, exitCode: 5, stdout: { text: 'begun\ncleaned\n' } })
  })
})

describe('a server that was killed', () => {
  test.skipIf(!hasProc).each(isRoot ? ['own', 'user'] : ['own'])(
    'leaves nothing after the next start: no process, no slot, and its caches are back (%s; needs /proc)',
    async (as) => {
      await open()
      const word = `orphan-${process.pid}-${as}`
      const slots = here.path('slots2')
      const command = `echo precious >cache/file; ${escapees(word, here.path('free/ready'))}`
      const server = spawn(
        process.execPath,
        ['--conditions=@reve/source', script, here.path('store2'), slots, command, as],
        {
          stdio: ['ignore', 'ignore', 'inherit'],
        },
      )
      const ended = new Promise((resolve) => void server.once('exit', resolve))
      await until('the escapees are there', () => linesOf(here.path('free/ready')).length === 4)
      server.kill('SIGKILL')
      await ended
      // The command itself may have died of its closed output.
      expect(processesWith(word).length).toBeGreaterThanOrEqual(4)
      expect(readdirSync(slots)).toHaveLength(2)

      writeFileSync(join(slots, 'not-ours'), 'stays')
      mkdirSync(join(slots, 'slot_foreign'))
      const next = await world({ slotsDir: slots })
      await next.runner.ready()
      expect(processesWith(word)).toEqual([])
      expect(readdirSync(slots).sort()).toEqual(['not-ours', 'slot_foreign'])
      expect(readFileSync(here.path('slots2-caches/kept/data/file'), 'utf8')).toBe('precious\n')
      await next.remove()
    },
  )

  test('the slots of one that lives are left alone', async () => {
    await open()
    const running = here.sh(
      `echo 1 >${here.path('free/begun')}; while [ ! -e ${here.path('go')} ]; do sleep 0.02; done; echo fine`,
    )
    await until('it began', () => linesOf(here.path('free/begun')).length === 1)
    const second = await world({ slotsDir: here.slots })
    await second.runner.ready()
    await second.remove()
    writeFileSync(here.path('go'), '')
    expect(await running).toMatchObject({ exitCode: 0, stdout: { text: 'fine\n' } })
  })
})

describe.skipIf(!canBeNobody)(
  'a server that may not make control groups (needs root to start one as another user)',
  () => {
    test('ends the escapees too, by what they carry of their slot', async () => {
      await open()
      const word = `poor-${process.pid}-`
      chownSync(here.path('free'), 65534, 65534)
      const { stdout, stderr } = spawnSync(
        process.execPath,
        [
          '--conditions=@reve/source',
          script,
          here.path('free/store'),
          here.path('free/slots'),
          escapees(word, here.path('free/ready')),
          'own',
          '3',
        ],
        { uid: 65534, gid: 65534, cwd: '/', encoding: 'utf8' },
      )
      expect(stderr).toBe('')
      expect(JSON.parse(stdout)).toMatchObject({
        kill: 'process group',
        timedOut: true,
        signal: 'SIGKILL',
        stdout: { text: 'all-ready\n' },
      })
      expect(processesWith(word)).toEqual([])
      expect(readdirSync(here.path('free/slots'))).toEqual([])
    })

    test('removes a slot whose directories were shut', async () => {
      await open()
      chownSync(here.path('free'), 65534, 65534)
      const command =
        'mkdir -p a/b; echo 1 >a/b/c; chmod 000 a/b a; mkdir "$TMPDIR/x"; echo 1 >"$TMPDIR/x/y"; chmod 000 "$TMPDIR/x"'
      const { stderr, status } = spawnSync(
        process.execPath,
        ['--conditions=@reve/source', script, here.path('free/store'), here.path('free/slots'), command, 'own'],
        {
          uid: 65534,
          gid: 65534,
          cwd: '/',
          encoding: 'utf8',
        },
      )
      expect(status).not.toBe(0)
      expect(stderr).toMatch(/capture_failed/)
      expect(stderr).toMatch(/\ba\b/)
      expect(readdirSync(here.path('free/slots'))).toEqual([])
    })
  },
)

const canMount =
  isRoot && spawnSync('/usr/bin/unshare', ['--mount', '/bin/mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0
describe.skipIf(!canMount)('a disk that fills up (needs to mount one)', () => {
  test.each([
    ['by its output', 'head -c 20000000 /dev/zero'],
    ['by what it writes, and then its output', 'head -c 20000000 /dev/zero >file; while :; do echo more; done'],
  ])('%s fails the run, and leaves room again', async (_how, script) => {
    await open()
    const disk = here.path('disk')
    mkdirSync(disk)
    spawnSync('/bin/mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk])
    const small = await world({ slotsDir: join(disk, 'slots') })
    try {
      await expect(small.sh(script)).rejects.toMatchObject({ code: 'disk_full' })
      expect(readdirSync(join(disk, 'slots'))).toEqual([])
      expect((await small.sh('echo fine')).stdout.text).toBe('fine\n')
    } finally {
      await small.remove()
      spawnSync('/bin/umount', [disk])
    }
  })
})

describe.skipIf(!isRoot)('actions of another user (needs root)', () => {
  beforeEach(() => open({ actionUser: nobody }))

  test('own their slot, and reach nothing of the server', async () => {
    writeFileSync(here.path('secret'), 'sentinel-4711', { mode: 0o600 })
    const tree = here.tree({ 'a/b': '1', 'x*': '#!/bin/sh\nid -u\n' })
    const result = await here.sh(
      `./x; id -G; echo 2 >>a/b; rm x; cat ${here.path('secret')}; ls ${here.path('store')}; ls ${here.slots}; echo x >../planted; kill -0 ${process.pid}; echo to >/dev/stderr`,
      { tree },
    )
    expect(result.stdout.text).toBe('65534\n65534\n')
    expect(result.stderr.text.endsWith('to\n')).toBe(true)
    expect(result.changed).toEqual([
      { path: 'a/b', change: 'changed' },
      { path: 'x', change: 'removed' },
    ])
    expect(here.runner.isolation()).toMatchObject({ contained: true, user: 'nobody' })
    expect(statSync(here.slots).mode & 0o777).toBe(0o711)
  })

  test('have results of their own', async () => {
    const own = await world()
    const action = { tree: here.store.emptyTree, argv: ['true'] }
    expect(own.runner.key(action)).not.toBe(here.runner.key(action))
    await own.remove()
  })

  test('can write their caches', async () => {
    const caches = [{ name: 'c', path: 'deep/c' }]
    expect((await here.sh('echo 1 >deep/c/x', { caches })).exitCode).toBe(0)
    expect((await here.sh('echo 2 >>deep/c/x; cat deep/c/x', { caches })).stdout.text).toBe('1\n2\n')
  })

  test('are refused when they could not reach their slots, and it is said where', async () => {
    mkdirSync(here.path('private'), { mode: 0o700 })
    const shut = await world({ actionUser: nobody, slotsDir: here.path('private/slots') })
    await expect(shut.runner.ready()).rejects.toMatchObject({
      code: 'setup_failed',
      message: expect.stringContaining('cannot pass through'),
    })
    await expect(shut.sh('true')).rejects.toMatchObject({ code: 'setup_failed' })
    await shut.remove()
  })
})
