import { createHash, randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { afterAll, describe, expect, test } from 'vitest'
import { type ByteSource, MicroVmError } from '../src/index.ts'
import { bench, removeFolders, sh, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const { vm } = bench()
afterAll(async () => {
  await vm.stop()
  removeFolders()
})

describe.skipIf(why !== undefined)('a command in the guest', () => {
  test('has its own exit code, and both streams apart', async () => {
    const result = await vm.exec({ argv: ['sh', '-c', 'echo to out; echo to err >&2; exit 7'] })
    expect({ ...result, durationMs: 0 }).toEqual({
      exitCode: 7,
      cancelled: false,
      timedOut: false,
      stdout: new Uint8Array(Buffer.from('to out\n')),
      stderr: new Uint8Array(Buffer.from('to err\n')),
      stdoutBytes: 7,
      stderrBytes: 7,
      leftRunning: [],
      durationMs: 0,
    })
  })

  test('streams its output while it runs', async () => {
    const seen: string[] = []
    const first = Promise.withResolvers<void>()
    const running = vm.exec({
      argv: ['sh', '-c', 'echo one; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo two; echo three >&2'],
      onOutput: (stream, chunk) => {
        seen.push(`${stream} ${Buffer.from(chunk).toString().trim()}`)
        first.resolve()
      },
    })
    await first.promise
    expect(seen).toEqual(['stdout one'])
    await sh(vm, 'touch /tmp/go')
    await running
    expect(seen.toSorted()).toEqual(['stderr three', 'stdout one', 'stdout two'])
  })

  test('gets arguments as they are, with no shell in between', async () => {
    const { stdout } = await vm.exec({ argv: ['printf', '%s|', 'a b', '$HOME', '"; rm -rf /', '*', 'ünï'] })
    expect(Buffer.from(stdout).toString()).toBe('a b|$HOME|"; rm -rf /|*|ünï|')
  })

  test('gets environment and folder, and nothing of the host', async () => {
    const { out } = await sh(vm, 'pwd; echo "$GIVEN $HOME $LANG"; env | sort | cut -d= -f1 | tr "\\n" " "', {
      cwd: '/tmp',
      env: { GIVEN: 'a=b c' },
    })
    expect(out.split('\n')).toEqual([
      '/tmp',
      'a=b c /root C.UTF-8',
      'GIVEN HOME LANG LOGNAME PATH PWD SHELL TERM USER ',
    ])
  })

  test('works in a login shell, in the workspace, as root', async () => {
    const { out } = await sh(vm, 'sh -lc "pwd; id -u; command -v git"')
    expect(out.split('\n')).toEqual(['/workspace', '0', '/usr/bin/git', ''])
  })

  test('carries bytes that are no text, both ways', async () => {
    const bytes = Uint8Array.from({ length: 1024 }, (_, index) => index % 256)
    const { stdout } = await vm.exec({ argv: ['cat'], stdin: bytes })
    expect(stdout).toEqual(bytes)
  })

  test('takes more input than a window, also when the program does not read it', async () => {
    const stdin = new Uint8Array(3_000_000)
    expect((await sh(vm, 'wc -c', { stdin })).out.trim()).toBe('3000000')
    expect((await sh(vm, 'head -c 1 >/dev/null; sleep 0.2; echo done', { stdin })).out).toBe('done\n')
    expect((await sh(vm, 'exec 0<&-; sleep 0.3; echo done', { stdin })).out).toBe('done\n')
  })

  test('that does not exist, or whose folder does not, says so', async () => {
    const missing = await vm.exec({ argv: ['no-such-program'] })
    expect([missing.exitCode, Buffer.from(missing.stderr).toString()]).toEqual([
      127,
      'cannot run no-such-program: No such file or directory\n',
    ])
    const nowhere = await vm.exec({ argv: ['true'], cwd: '/no/such' })
    expect([nowhere.exitCode, Buffer.from(nowhere.stderr).toString()]).toEqual([
      126,
      'cannot enter /no/such: No such file or directory\n',
    ])
  })

  test('that a signal kills has 128 and the signal', async () => {
    const result = await vm.exec({ argv: ['sh', '-c', 'kill -TERM $$'] })
    expect([result.exitCode, result.signal, result.cancelled]).toEqual([143, 15, false])
  })

  test('runs beside nineteen others, each with its own output', async () => {
    const outputs = await Promise.all(
      Array.from({ length: 20 }, (_, index) => sh(vm, `cat; echo ${index}; exit ${index}`, { stdin: `in ${index} ` })),
    )
    expect(outputs.map(({ code, out }) => [code, out])).toEqual(
      Array.from({ length: 20 }, (_, index) => [index, `in ${index} ${index}\n`]),
    )
  })

  test('that floods is bounded, counted to the byte, and does not hold others up', async () => {
    const flood = vm.exec({
      argv: ['sh', '-c', 'head -c 60000000 /dev/zero; head -c 12345 /dev/zero >&2'],
      maxOutputBytes: 1000,
    })
    expect((await sh(vm, 'echo meanwhile')).out).toBe('meanwhile\n')
    const result = await flood
    expect([result.stdoutBytes, result.stderrBytes, result.stdout.length, result.stderr.length]).toEqual([
      60_000_000, 12_345, 1000, 1000,
    ])
  })

  test('loses nothing of what it wrote last', async () => {
    const sizes = await Promise.all(
      Array.from({ length: 8 }, () => vm.exec({ argv: ['sh', '-c', 'head -c 65536 /dev/zero'] })),
    )
    expect(sizes.map(({ stdoutBytes }) => stdoutBytes)).toEqual(Array.from({ length: 8 }, () => 65_536))
  })

  test('ends with its own process, whatever a child in the background holds', async () => {
    const { out } = await sh(vm, 'sleep 1000 & (setsid sleep 1001 &); echo over')
    expect(out).toBe('over\n')
    expect((await sh(vm, 'grep -l "^sleep" /proc/[0-9]*/comm | wc -l')).out.trim()).toBe('2')
    await sh(
      vm,
      'for comm in $(grep -l "^sleep" /proc/[0-9]*/comm); do kill -9 "$(basename "$(dirname "$comm")")"; done',
    )
  })

  const tree =
    'trap "" TERM INT HUP; (setsid sh -c "trap \\"\\" TERM; sleep 2001" &); (sleep 2002 & sleep 2003 &); echo up; sleep 2004; echo never'
  const sleepers = async (): Promise<string> =>
    (await sh(vm, 'grep -l "^sleep" /proc/[0-9]*/comm 2>/dev/null | wc -l')).out.trim()

  test('that is cancelled is dead with all that it started: 130, output kept, the VM serves on', async () => {
    const cancel = new AbortController()
    const result = await vm.exec({
      argv: ['sh', '-c', tree],
      signal: cancel.signal,
      onOutput: () => void setTimeout(() => cancel.abort(), 300),
    })
    expect([result.exitCode, result.cancelled, result.timedOut, Buffer.from(result.stdout).toString()]).toEqual([
      130,
      true,
      false,
      'up\n',
    ])
    expect(result.leftRunning).toContain('sleep')
    expect(await sleepers()).toBe('0')
  })

  test('that takes too long is dead with all that it started: 124, output kept, and what still ran', async () => {
    const result = await vm.exec({ argv: ['sh', '-c', tree], timeoutMs: 1500 })
    expect([result.exitCode, result.cancelled, result.timedOut, Buffer.from(result.stdout).toString()]).toEqual([
      124,
      false,
      true,
      'up\n',
    ])
    expect(result.leftRunning).toEqual(expect.arrayContaining(['sh', 'sleep']))
    expect(await sleepers()).toBe('0')
  })

  test('whose signal was aborted before is never run', async () => {
    const result = await vm.exec({ argv: ['touch', '/tmp/ran'], signal: AbortSignal.abort() })
    expect([result.exitCode, result.cancelled]).toEqual([130, true])
    expect((await sh(vm, 'test -e /tmp/ran')).code).toBe(1)
  })

  test('whose reader throws is killed, and the VM serves on', async () => {
    const failure = new Error('the reader broke')
    const running = vm.exec({
      argv: ['sh', '-c', 'echo x; sleep 3000'],
      onOutput: () => {
        throw failure
      },
    })
    await expect(running).rejects.toBe(failure)
    expect(await sleepers()).toBe('0')
  })

  test('takes its input from a source, as fast as it reads', async () => {
    const given = randomBytes(3_000_000)
    let taken = 0
    const source = async function* (): ByteSource {
      for (let at = 0; at < given.length; at += 100_000) {
        taken = at
        yield await Promise.resolve(given.subarray(at, at + 100_000))
      }
    }
    const wait = 'while [ ! -e /tmp/read ]; do sleep 0.05; done; sha256sum'
    const running = sh(vm, wait, { stdin: source() })
    // Ten round trips of another command give it time to go too far.
    for (let turn = 0; turn < 10; turn++) await sh(vm, 'true')
    expect(taken).toBeLessThan(1_000_000)
    await sh(vm, 'touch /tmp/read')
    expect((await running).out).toBe(`${createHash('sha256').update(given).digest('hex')}  -\n`)
    expect((await sh(vm, 'wc -c', { stdin: new Response(given).body ?? '' })).out.trim()).toBe('3000000')
    expect((await sh(vm, 'wc -c', { stdin: Readable.from([Buffer.from('ab'), Buffer.from('c')]) })).out.trim()).toBe(
      '3',
    )
  })

  test('whose source of input fails is killed, and says why', async () => {
    const cause = new Error('the source broke')
    const failing = async function* (): ByteSource {
      yield await Promise.resolve(Buffer.from('some'))
      throw cause
    }
    const running = vm.exec({ argv: ['sh', '-c', 'cat; sleep 3005'], stdin: failing() })
    await expect(running).rejects.toMatchObject({ code: 'input_failed', cause })
    expect(await sleepers()).toBe('0')
  })

  test('that ends first closes the source of its input', async () => {
    const closed = Promise.withResolvers<void>()
    const endless: ByteSource = {
      [Symbol.asyncIterator]: () => ({
        next: async () => ({ done: false, value: Buffer.from('y\n') }),
        return: async () => {
          closed.resolve()
          return { done: true, value: undefined }
        },
      }),
    }
    expect((await sh(vm, 'head -n 1', { stdin: endless })).out).toBe('y\n')
    // Half a window of the smallest pieces, faster than anybody reads.
    async function* small(): AsyncGenerator<Uint8Array> {
      for (let count = 0; count < 100_000; count++) yield Buffer.from('z')
    }
    expect((await sh(vm, 'wc -c', { stdin: small() })).out.trim()).toBe('100000')
    // A pipe that nobody closes must not keep its reader's process alive.
    const silent = new Readable({ read: () => undefined })
    expect((await sh(vm, 'echo done', { stdin: silent })).out).toBe('done\n')
    expect(silent.destroyed).toBe(true)
    await closed.promise
  })

  test('waits for a reader that takes its time, and gives it all in order', async () => {
    const seen: Buffer[] = []
    const go = Promise.withResolvers<void>()
    const running = vm.exec({
      argv: ['sh', '-c', 'seq 400000; echo written > /tmp/written'],
      maxOutputBytes: 0,
      onOutput: (_, chunk) => {
        seen.push(Buffer.from(chunk))
        return go.promise
      },
    })
    for (let turn = 0; turn < 10; turn++) await sh(vm, 'true')
    expect([seen.length, (await sh(vm, 'test -e /tmp/written')).code]).toEqual([1, 1])
    go.resolve()
    const result = await running
    const all = Buffer.concat(seen).toString()
    expect(all.length).toBe(result.stdoutBytes)
    expect(all).toBe(Array.from({ length: 400_000 }, (_, index) => `${index + 1}\n`).join(''))
  })

  test('ends when it is cancelled, also while its reader never comes back', async () => {
    const cancel = new AbortController()
    let bytes = 0
    const result = await vm.exec({
      argv: ['sh', '-c', 'cat /dev/zero'],
      signal: cancel.signal,
      maxOutputBytes: 10,
      onOutput: (_, chunk) => {
        bytes += chunk.length
        setTimeout(() => cancel.abort(), 200)
        return new Promise(() => undefined)
      },
    })
    expect([result.exitCode, result.cancelled, result.stdoutBytes]).toEqual([130, true, bytes])
  })

  test('whose reader fails later is killed likewise', async () => {
    const failure = new Error('the reader broke')
    const running = vm.exec({
      argv: ['sh', '-c', 'echo x; sleep 3006'],
      onOutput: () => new Promise((_, reject) => setTimeout(() => reject(failure), 100)),
    })
    await expect(running).rejects.toBe(failure)
    expect(await sleepers()).toBe('0')
  })

  test('has no network when none is given', async () => {
    expect((await sh(vm, 'ls /sys/class/net; cat /proc/net/route | wc -l')).out).toBe('lo\n1\n')
  })

  test('leaves no orphan of its own unreaped', async () => {
    await sh(vm, 'for i in 1 2 3 4 5; do (setsid sh -c "sleep 0.1" &); done')
    await until(
      async () => (await sh(vm, 'grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null | wc -l')).out.trim() === '0',
      'orphans are reaped',
    )
  })

  test('that makes no sense is refused before the guest sees it', async () => {
    const refused = async (request: Parameters<typeof vm.exec>[0]): Promise<string> => {
      const error: unknown = await vm.exec(request).catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(MicroVmError)
      return error instanceof MicroVmError ? `${error.code} ${error.message}` : ''
    }
    expect(await refused({ argv: [] })).toBe('bad_spec exec: argv needs a program')
    expect(await refused({ argv: ['a\0b'] })).toContain('NUL')
    for (const timeoutMs of [0, -1, Number.NaN, 2 ** 31])
      expect(await refused({ argv: ['true'], timeoutMs })).toContain('timeoutMs')
    expect(await refused({ argv: ['true'], env: { 'A=B': '' } })).toContain('"A=B"')
    expect(await refused({ argv: ['echo', 'x'.repeat(1_100_000)] })).toContain('put the text into a file or stdin')
  })

  test('with an argument that the kernel refuses says so', async () => {
    const result = await vm.exec({ argv: ['echo', 'x'.repeat(500_000)] })
    expect([result.exitCode, Buffer.from(result.stderr).toString()]).toEqual([
      126,
      'cannot run echo: Argument list too long\n',
    ])
  })

  test('sees the clock of the host, and random numbers', async () => {
    const { out } = await sh(vm, 'date +%s; head -c 16 /dev/urandom | od -An -tx1')
    const [seconds = '', random = ''] = out.split('\n')
    expect(Math.abs(Number(seconds) - Date.now() / 1000)).toBeLessThan(30)
    expect(random.replaceAll(' ', '')).toMatch(/^[0-9a-f]{32}$/)
  })
})
