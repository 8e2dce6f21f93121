import { afterAll, describe, expect, test } from 'vitest'
import type { ExecHandle, ExecRequest } from '../src/index.ts'
import { bench, removeFolders, sh, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const { vm } = bench()
afterAll(async () => {
  await vm.stop()
  removeFolders()
})

const pty = { cols: 100, rows: 30 }

/** A command on a terminal, and what has appeared there so far. */
function open(text: string, request: Partial<ExecRequest> = {}): { readonly handle: ExecHandle; screen(): string } {
  let seen = ''
  const handle = vm.spawn({
    argv: ['sh', '-c', text],
    pty,
    onOutput: (_, chunk) => void (seen += Buffer.from(chunk).toString()),
    ...request,
  })
  return { handle, screen: () => seen }
}

const shows = (it: ReturnType<typeof open>, text: string): Promise<void> =>
  until(() => it.screen().includes(text), `"${text}" on ${JSON.stringify(it.screen())}`)

describe.skipIf(why !== undefined)('a command on a terminal', () => {
  test('has one, with its size and name; all that it writes comes as stdout', async () => {
    const result = await vm.exec({
      argv: ['sh', '-c', 'tty; stty size; echo "$TERM"; echo error >&2; echo last > /dev/tty'],
      pty,
    })
    expect([Buffer.from(result.stdout).toString(), result.stderrBytes, result.exitCode]).toEqual([
      '/dev/pts/0\r\n30 100\r\nxterm-256color\r\nerror\r\nlast\r\n',
      0,
      0,
    ])
    const named = await vm.exec({ argv: ['sh', '-c', 'echo $TERM'], pty: { ...pty, term: 'vt100' } })
    expect(Buffer.from(named.stdout).toString()).toBe('vt100\r\n')
  })

  test('is interrupted by a typed Ctrl-C, and ended by the end of its input', async () => {
    const it = open('trap "echo caught" INT; cat; echo over')
    await it.handle.write('hi\n')
    // The terminal's echo, then cat's: a shell that is interrupted before its program runs goes on to run it.
    await shows(it, 'hi\r\nhi\r\n')
    await it.handle.write('\x03')
    await shows(it, 'caught')
    await shows(it, 'over')
    expect((await it.handle.result).exitCode).toBe(0)
    const typed = await vm.exec({ argv: ['cat'], pty, stdin: 'no end of line' })
    expect([typed.exitCode, Buffer.from(typed.stdout).toString()]).toEqual([0, 'no end of lineno end of line'])
  })

  test('may let go of its terminal before it ends, and take it again', async () => {
    const codes = new Set<number>()
    for (let run = 0; run < 40; run++) codes.add((await vm.exec({ argv: ['cat'], pty })).exitCode)
    expect([...codes]).toEqual([0])
    const again = 'exec 0<&- 1>&- 2>&-; sleep 0.1; exec > /dev/tty; echo again; exit 3'
    const result = await vm.exec({ argv: ['sh', '-c', again], pty })
    expect([result.exitCode, Buffer.from(result.stdout).toString()]).toEqual([3, 'again\r\n'])
  })

  test('takes more than a terminal holds, when it reads', async () => {
    const lines = Array.from({ length: 3000 }, (_, index) => `line ${index} ${'x'.repeat(40)}\n`).join('')
    const result = await vm.exec({ argv: ['sh', '-c', 'stty -echo; exec wc -c'], pty, stdin: lines })
    // What was typed before the echo was turned off is shown, so only the end is sure.
    expect(Buffer.from(result.stdout).toString()).toMatch(new RegExp(`${lines.length}\\r\\n$`))
  })

  test('hears of a new size, also of one that came before it began', async () => {
    const it = open('trap "stty size; exit 3" WINCH; stty size; while :; do sleep 0.05; done')
    await shows(it, '30 100')
    it.handle.resize({ cols: 41, rows: 17 })
    await shows(it, '17 41')
    expect((await it.handle.result).exitCode).toBe(3)
    const early = open('while [ "$(stty size)" = "30 100" ]; do sleep 0.05; done; stty size')
    early.handle.resize({ cols: 6, rows: 5 })
    await early.handle.result
    expect(early.screen()).toBe('5 6\r\n')
    expect(() => it.handle.resize({ cols: 0, rows: 17 })).toThrow('a terminal of 0 by 17')
  })

  test('may be a shell with jobs', async () => {
    const it = open('exec sh -i')
    await it.handle.write('echo $((6*7)); sleep 100 &\n')
    await shows(it, '42')
    await it.handle.write('kill %1; exit 5\n')
    const result = await it.handle.result
    expect(result.exitCode).toBe(5)
    expect(it.screen()).not.toContain('job control')
  })

  test('that is cancelled is dead with all that it started, also what left the terminal', async () => {
    const cancel = new AbortController()
    const it = open('(setsid sleep 3001 &); sleep 3002 & echo up; sleep 3003', { signal: cancel.signal })
    await shows(it, 'up')
    cancel.abort()
    const result = await it.handle.result
    expect([result.exitCode, result.cancelled, Buffer.from(result.stdout).toString()]).toEqual([130, true, 'up\r\n'])
    expect((await sh(vm, 'grep -l "^sleep" /proc/[0-9]*/comm 2>/dev/null | wc -l')).out.trim()).toBe('0')
  })

  test('carries a megabyte', async () => {
    const result = await vm.exec({ argv: ['sh', '-c', 'head -c 1000000 /dev/zero | tr "\\0" x'], pty })
    expect(result.stdoutBytes).toBe(1_000_000)
  })
})

describe.skipIf(why !== undefined)('a handle', () => {
  test('writes, ends, and gives the result', async () => {
    const handle = vm.spawn({ argv: ['sh', '-c', 'cat; exit 4'] })
    await handle.write('one ')
    await handle.write(Buffer.from('two'))
    handle.end()
    const result = await handle.result
    expect([result.exitCode, Buffer.from(result.stdout).toString()]).toEqual([4, 'one two'])
    await handle.write('for nobody')
  })

  test('sends signals to the whole tree, which may live on', async () => {
    let seen = ''
    const child = 'trap "echo child" USR1; while :; do sleep 0.05; done'
    const handle = vm.spawn({
      argv: ['sh', '-c', `(${child}) & trap "echo parent" USR1; echo up; while :; do sleep 0.05; done`],
      onOutput: (_, chunk) => void (seen += Buffer.from(chunk).toString()),
    })
    await until(() => seen.includes('up'), 'it runs')
    await until(() => {
      handle.kill('SIGUSR1')
      return seen.includes('child') && seen.includes('parent')
    }, 'both heard of it')
    handle.kill()
    const result = await handle.result
    expect([result.exitCode, result.signal, result.cancelled]).toEqual([143, 15, false])
    const killed = vm.spawn({ argv: ['sh', '-c', 'trap "" TERM; sleep 4000'] })
    killed.kill('SIGKILL')
    expect(await killed.result).toMatchObject({ exitCode: 137, signal: 9, cancelled: false })
  })
})
