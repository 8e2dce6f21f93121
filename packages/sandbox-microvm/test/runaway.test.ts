import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ConfinedError, openConfined, sanitiseLine } from '@reve/base'
import { afterAll, describe, expect, test } from 'vitest'
import type { ByteSource, ExecResult, MicroVm } from '../src/index.ts'
import { bench, folder, removeFolders, sh, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const MB = 1_000_000
/** How much a flood is: 1000 is what the promise says. */
const FLOOD_MB = Number(process.env['REVE_FLOOD_MB'] || 200)
/** What the host may hold more while it lasts; Node's own ups and downs are in it. */
const ROOM_MB = 120

const root = folder()
writeFileSync(join(root, 'of-the-host'), 'a file of the host')
// As small as one can be, so that it is full soon.
const DISK_MIB = 1024
const { vm, workspace, spec } = bench({ name: 'runaway', diskMiB: DISK_MIB }, {}, root)
afterAll(async () => {
  await vm.stop()
  removeFolders()
})

/** Runs a command until `holds`, then cancels it. */
async function cancelWhen(
  text: string,
  holds: () => boolean | Promise<boolean>,
  request: { readonly stdin?: ByteSource; readonly on?: MicroVm } = {},
): Promise<ExecResult> {
  const { on = vm, ...rest } = request
  const cancel = new AbortController()
  const running = on.exec({ argv: ['sh', '-c', text], signal: cancel.signal, ...rest })
  try {
    await until(holds, `"${text}" is under way`, 90_000)
  } finally {
    cancel.abort()
    await running
  }
  return running
}

const processes = async (name: string): Promise<string> =>
  (await sh(vm, `grep -lx ${name} /proc/[0-9]*/comm 2>/dev/null | wc -l`)).out.trim()
/** Of all commands together; read without a new process. */
const count = async (): Promise<number> =>
  Number((await sh(vm, 'read n < /sys/fs/cgroup/reve/pids.current; echo $n')).out)
const serves = async (on = vm): Promise<void> => expect((await sh(on, 'ls / | wc -l; echo on')).out).toMatch(/on\n$/)

/** How much more this process holds at most while `work` runs, in MB. */
async function growth(work: () => Promise<unknown>): Promise<number> {
  const before = process.memoryUsage().rss
  let most = before
  const timer = setInterval(() => (most = Math.max(most, process.memoryUsage().rss)), 20)
  try {
    await work()
  } finally {
    clearInterval(timer)
  }
  return (most - before) / MB
}

describe.skipIf(why !== undefined)('a guest that runs away harms itself only', () => {
  const bombs = {
    python: 'python3 -c "import os\nwhile True:\n  try: os.fork()\n  except BaseException: pass" & sleep 4000',
    // Each of its processes ends at once, and leaves two.
    shell: 'f() { f | f & }; f; sleep 4000',
  }
  test.each(Object.entries(bombs))('as a fork bomb in %s: a cancel is heard and leaves nothing', async (_, bomb) => {
    const result = await cancelWhen(bomb, async () => (await count()) > 200)
    expect([result.exitCode, result.cancelled]).toEqual([130, true])
    expect(result.leftRunning.length).toBeGreaterThan(1)
    // They are killed by now; to end takes each of them a moment.
    await until(async () => (await count()) < 10, 'all are gone')
    await serves()
  })

  test('as a fork bomb whose command is over: it meets a limit, and the VM serves beside it', async () => {
    const before = await count()
    await sh(vm, '(f() { f | f & }; f) >/dev/null 2>&1 &')
    await until(async () => (await count()) > 200, 'it grows', 60_000)
    for (let turn = 0; turn < 20; turn++) await serves()
    expect(Number((await sh(vm, 'tr -dc 0-9 < /sys/fs/cgroup/reve/pids.max')).out)).toBeLessThanOrEqual(
      2 * spec.memoryMiB,
    )
    // As whoever looks after it would.
    await sh(
      vm,
      'read own < /proc/self/cgroup; for group in /sys/fs/cgroup/reve/*/; do [ "/sys/fs/cgroup${own#0::}/" = "$group" ] || echo 1 > "${group}cgroup.kill"; done',
    )
    await until(async () => (await count()) <= before, 'all are gone')
    await serves()
  })

  test('as one that eats memory: it alone is killed', async () => {
    const witness = vm.spawn({ argv: ['cat'] })
    const { exitCode, signal } = await vm.exec({
      argv: ['python3', '-c', "held = []\nwhile True: held.append(b'x' * 4_000_000 + bytes([len(held) % 256]))"],
    })
    expect([exitCode, signal]).toEqual([137, 9])
    await witness.write('still here')
    witness.end()
    expect(Buffer.from((await witness.result).stdout).toString()).toBe('still here')
    await serves()
  })

  test('as one that fills the disk: that is its own failure, and goes away with the file', async () => {
    const full = await sh(vm, 'fallocate -l 400M /root/most; cat /dev/zero > /root/full')
    expect([full.code, full.err]).toEqual([1, expect.stringContaining('No space left on device')])
    await serves()
    expect((await sh(vm, 'head -c 9 /dev/zero > /root/more')).err).toContain('No space left on device')
    await expect(vm.writeFile('/root/file', Buffer.alloc(MB))).rejects.toMatchObject({ code: 'no_space' })
    // On the host it is no more than the spec gives it, and what the format itself takes.
    const [disk = ''] = readdirSync(spec.stateDir).filter((name) => name.endsWith('.qcow2'))
    expect(statSync(join(spec.stateDir, disk)).blocks * 512).toBeLessThan((DISK_MIB + 16) * 2 ** 20)
    await sh(vm, 'rm -f /root/most /root/full /root/more /root/file; sync')
    expect((await sh(vm, 'echo fits > /root/fits; cat /root/fits')).out).toBe('fits\n')
  })

  test(`as a flood of ${FLOOD_MB} MB of output: counted to the byte, kept to the limit, never held`, async () => {
    let result: ExecResult | undefined
    const grown = await growth(async () => {
      result = await vm.exec({
        argv: ['head', '-c', String(FLOOD_MB * MB + 17), '/dev/zero'],
        maxOutputBytes: 1000,
      })
    })
    expect([result?.exitCode, result?.stdoutBytes, result?.stdout.length]).toEqual([0, FLOOD_MB * MB + 17, 1000])
    expect(grown).toBeLessThan(ROOM_MB)
  })

  test('as a flood of what it is told to read: only as much is taken as it reads', async () => {
    let taken = 0
    const endless = async function* (): ByteSource {
      for (const piece = Buffer.alloc(100_000); ; taken += piece.length) yield await Promise.resolve(piece)
    }
    const unread = await cancelWhen(
      'echo $$ > /tmp/flooded; sleep 4001',
      async () => (await sh(vm, 'test -s /tmp/flooded')).code === 0,
      {
        stdin: endless(),
      },
    )
    expect([unread.exitCode, taken < MB]).toEqual([130, true])
    const grown = await growth(() => cancelWhen('cat > /dev/null', () => taken > 50 * MB, { stdin: endless() }))
    expect(grown).toBeLessThan(ROOM_MB)
    expect(await processes('cat')).toBe('0')
  })

  test('as one that hears no signal, or is stopped: a cancel ends it all the same', async () => {
    const up = Promise.withResolvers<void>()
    const handle = vm.spawn({
      argv: ['sh', '-c', 'trap "" TERM INT HUP QUIT; echo up; while :; do sleep 0.1; done'],
      onOutput: () => up.resolve(),
    })
    await up.promise
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGSTOP'] as const) handle.kill(signal)
    const stopped = async (): Promise<string> => (await sh(vm, 'grep -ls "^State:.T" /proc/[0-9]*/status | wc -l')).out
    await until(async () => (await stopped()) !== '0\n', 'it is stopped')
    handle.kill('SIGKILL')
    expect((await handle.result).exitCode).toBe(137)
    const result = await cancelWhen(
      'trap "" TERM INT; touch /tmp/deaf; kill -STOP $$; sleep 4002',
      async () => (await sh(vm, 'test -e /tmp/deaf')).code === 0,
    )
    expect([result.exitCode, result.cancelled]).toEqual([130, true])
    expect(await count()).toBeLessThan(10)
  })

  test('as a daemon that has left its parents and its session: it is dead with the command', async () => {
    const daemon = `python3 - <<'PY'
import os, time
for turn in range(3):
  if os.fork() > 0: os._exit(0)
  os.setsid(); os.chdir('/')
for fd in range(3): os.close(fd)
open('/proc/self/comm', 'w').write('daemon-of-it')
time.sleep(4003)
PY
sleep 4004`
    const result = await cancelWhen(daemon, async () => (await processes('daemon-of-it')) === '1')
    expect(result.exitCode).toBe(130)
    expect(result.leftRunning).toEqual(expect.arrayContaining(['daemon-of-it', 'sleep']))
    expect(await processes('daemon-of-it')).toBe('0')
  })

  test('as one that sets the clock: time limits hold, and the next start has it right', async () => {
    await sh(vm, 'date -s "2001-02-03 04:05:06"')
    expect((await sh(vm, 'date +%Y')).out).toBe('2001\n')
    const late = await vm.exec({ argv: ['sleep', '4005'], timeoutMs: 500 })
    expect([late.exitCode, late.durationMs >= 500 && late.durationMs < 60_000]).toEqual([124, true])
    await vm.stop()
    const seconds = Number((await sh(vm, 'date +%s')).out)
    expect(Math.abs(seconds - Date.now() / 1000)).toBeLessThan(30)
  })
})

/** Names that a terminal, a shell, a walk or a parser may trip over, as bytes. */
const HOSTILE: readonly string[] = [
  'new\nline',
  '\x1b]0;title\x07',
  '\x1b[2J\x1b[H',
  '-rf',
  '--help',
  '...',
  '..\n',
  ' ',
  'a\rb',
  '\xff\xfe',
  '\xc3',
  '\xed\xa0\x80',
  '\xe2\x80\xaereversed',
  '$(touch made)',
  '`touch made`',
  '; touch made',
  '*',
  '\\..\\..\\etc',
  '%s%n',
  'CON',
  '.git ',
  '\x01\x02\x7f',
  'x'.repeat(255),
]

describe.skipIf(why !== undefined)('files that a guest leaves in the workspace', () => {
  test('may have any name: a thousand of them are listed, shown and removed without harm', async () => {
    const names = [
      ...HOSTILE,
      ...Array.from({ length: 1000 - HOSTILE.length }, (_, index) => `${index}\n\x1b[31m\xff${index}`),
    ]
    const code = `import os, sys
for name in sys.stdin.buffer.read().split(b'\\0'): open(name, 'wb').write(name)`
    const stdin = Buffer.from(names.join('\0'), 'latin1')
    expect((await vm.exec({ argv: ['python3', '-c', code], stdin })).exitCode).toBe(0)
    const around = readdirSync(root)
    const seen = readdirSync(workspace, { encoding: 'buffer' })
    expect(seen.map((name) => name.toString('latin1')).toSorted()).toEqual(names.toSorted())
    const confined = await openConfined(workspace)
    const listed = await confined.list('')
    expect([listed.length, listed.every(({ kind }) => kind === 'file')]).toEqual([1000, true])
    // oxlint-disable-next-line no-control-regex
    expect(listed.filter(({ name }) => /[\x00-\x1f\x7f-\x9f]/.test(sanitiseLine(name)))).toEqual([])
    for (const { name } of listed) {
      // A name that is no text is not found under the one that is shown for it; no name is taken for another place.
      const bytes = await confined.readBytes(name, { maxBytes: 300 }).catch((error: ConfinedError) => error.code)
      if (typeof bytes === 'string') expect(bytes).toBe('not_found')
      else expect(Buffer.from(bytes).toString()).toBe(name)
    }
    expect(readdirSync(root)).toEqual(around)
    await sh(vm, 'find . -mindepth 1 -delete')
    expect(readdirSync(workspace)).toEqual([])
  })

  test('may lie deeper than a path can say', async () => {
    const code = `import os
for depth in range(40): os.mkdir('d' * 200); os.chdir('d' * 200)
open('bottom', 'w').write('x')`
    expect((await vm.exec({ argv: ['python3', '-c', code] })).exitCode).toBe(0)
    const confined = await openConfined(workspace)
    const path = `${`${'d'.repeat(200)}/`.repeat(40)}bottom`
    expect(await confined.readText(path, { maxBytes: 10 })).toBe('x')
    await sh(vm, 'rm -r d*')
    expect(readdirSync(workspace)).toEqual([])
  })

  test('may be links, and no pipes and sockets: the confined access follows none and waits for none', async () => {
    const made = await sh(
      vm,
      `ln -s /etc/passwd file; ln -s / folder; ln -s ../of-the-host near; ln -s ${root}/of-the-host far
ln -s loop loop; mkdir real; ln -s .. real/up`,
    )
    expect([made.code, made.err]).toEqual([0, ''])
    const confined = await openConfined(workspace)
    const code = (path: string): Promise<string> =>
      confined.readText(path, { maxBytes: 1000 }).catch((error: ConfinedError) => error.code)
    expect(await Promise.all(['file', 'near', 'far', 'loop'].map(code))).toEqual(Array(4).fill('is_link'))
    expect(await Promise.all(['folder/etc/passwd', 'real/up/of-the-host'].map(code))).toEqual(
      Array(2).fill('not_a_folder'),
    )
    // Made here: QEMU makes none for a guest.
    execFileSync('mkfifo', [join(workspace, 'pipe')])
    expect(await code('pipe')).toBe('not_a_file')
    const special = await sh(
      vm,
      `mkfifo other; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`,
    )
    expect([special.code === 0, readdirSync(workspace).filter((name) => ['other', 'socket'].includes(name))]).toEqual([
      false,
      [],
    ])
    rmSync(join(workspace, 'pipe'))
    expect(await Promise.all(['../of-the-host', 'real/../../of-the-host', '/etc/passwd'].map(code))).toEqual(
      Array(3).fill('escapes_root'),
    )
    await confined.writeAtomic('near', 'in its place')
    expect(readFileSync(join(root, 'of-the-host'), 'utf8')).toBe('a file of the host')
    // In the guest they lead to the guest's own.
    expect((await sh(vm, 'cat far; ls folder/workspace')).out).toBe((await sh(vm, 'ls')).out)
    await sh(vm, 'find . -mindepth 1 -delete')
  })

  test('may be swapped while the host reads them: what is read is never of the host', async () => {
    mkdirSync(join(root, 'outside'))
    writeFileSync(join(root, 'outside', 'notes'), 'of the host')
    const swapping = `mkdir at; echo mine > at/notes; python3 -c '
from os import rename, symlink, unlink
while True: symlink("../outside", "link"); rename("at", "aside"); rename("link", "at"); unlink("at"); rename("aside", "at")'`
    const confined = await openConfined(workspace)
    const seen = new Set<string>()
    const result = await cancelWhen(swapping, async () => {
      for (let turn = 0; turn < 200; turn++)
        seen.add(await confined.readText('at/notes', { maxBytes: 100 }).catch((error: ConfinedError) => error.code))
      return seen.has('mine\n') && seen.has('not_a_folder')
    })
    expect(result.exitCode).toBe(130)
    // Empty is one that is being written.
    const good = ['', 'mine\n', 'is_link', 'not_found', 'not_a_folder']
    expect([...seen].filter((what) => !good.includes(what))).toEqual([])
    await sh(vm, 'find . -mindepth 1 -delete')
  })
})

describe.skipIf(why !== undefined)('a guest whose memory is full of files', () => {
  test('ends or serves on, and is whole again after a start', async () => {
    await sh(vm, 'echo kept > /root/kept; sync')
    await sh(vm, 'cat /dev/zero > /dev/shm/full; cat /dev/zero > /run/full; cat /dev/zero > /run/lock/full').catch(
      (error: { code: string }) => expect(error.code).toBe('guest_lost'),
    )
    await vm.stop()
    expect((await sh(vm, 'cat /root/kept; ls /run')).out).toMatch(/^kept\n(?!full)/)
    await serves()
  })
})
