import { mkdir, stat, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import type { ToolContext } from '@reve/harness'
import type { JsonObject } from '@reve/providers/model'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bashTool } from '../src/command-tools.ts'
import { readTool } from '../src/file-tools.ts'
import { spill } from '../src/spill.ts'
import { callTool, canBoot, type GuestVm, startVm } from './guest-vm.ts'

describe.skipIf(!(await canBoot()))('bash in the guest', () => {
  let guest: GuestVm
  beforeAll(async () => {
    guest = await startVm()
  })
  afterAll(() => guest.vm.stop())

  const run = (args: JsonObject, context: Partial<ToolContext> = {}) => callTool(bashTool(guest.vm), args, context)
  const bash = async (command: string): Promise<string> => (await run({ command })).text
  const appeared = async (file: string): Promise<void> => {
    while (!(await stat(join(guest.workspace, file)).catch(() => undefined)))
      await new Promise((done) => setTimeout(done, 20))
  }

  test('gives both streams, and the code when it is not 0', async () => {
    expect(await run({ command: 'echo out; echo err >&2; exit 3' })).toEqual({
      text: 'out\nerr\n(exit 3)',
      isError: true,
    })
    expect(await run({ command: 'true' })).toEqual({ text: '(no output)', isError: false })
    expect(await bash('pwd; echo $0')).toBe('/workspace\nsh')
    expect(await bash('read line || echo the input is empty')).toBe('the input is empty')
  })

  test('runs in another folder when asked to, whatever its name', async () => {
    await mkdir(join(guest.workspace, '-deep/two words'), { recursive: true })
    expect((await run({ command: 'pwd; echo $0', cwd: '-deep/two words' })).text).toBe('/workspace/-deep/two words\nsh')
    expect((await run({ command: 'pwd', cwd: '/tmp' })).text).toBe('/tmp')
    const missing = await run({ command: 'touch /tmp/it-ran', cwd: 'nowhere' })
    expect(missing).toMatchObject({ isError: true, text: expect.stringContaining('./nowhere') })
    expect(await bash('ls /tmp/it-ran 2>&1')).toContain('No such file')
  })

  test('a time that cannot be meant is refused, and nothing runs', async () => {
    for (const timeout of [0, -1, 1.5, 120_000, Number.NaN, 'soon']) {
      const { text, isError } = await run({ command: 'touch /workspace/ran', timeout })
      expect([isError, text]).toEqual([true, expect.stringMatching(/^bash: timeout: must be 1 to 3600 seconds/)])
    }
    expect(await stat(join(guest.workspace, 'ran')).catch(() => 'none')).toBe('none')
  })

  test('ends a command that takes too long, with all that it started, and says what still ran', async () => {
    const command = 'trap "" TERM; setsid sleep 1111 & echo before; sleep 2222'
    const { text, isError } = await run({ command, timeout: 1 })
    expect(isError).toBe(true)
    expect(text).toMatch(/^before\n\(timed out after 1 s; still running and killed: .*sleep/)
    expect(
      await bash(
        'ps -e -o args= 2>/dev/null | grep -c "[s]leep [12]" || cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "sleep [12][12]"',
      ),
    ).toMatch(/^0/)
  })

  test('a child in the background holds nothing up, also when it has the output open, and goes on', async () => {
    expect(await bash('(sleep 600; echo late) & echo $! >/tmp/child; echo done')).toBe('done')
    expect(await bash('kill -0 $(cat /tmp/child) && echo it runs; kill $(cat /tmp/child)')).toBe('it runs')
  })

  test('a cancelled one keeps its output, and the VM serves the next', async () => {
    const controller = new AbortController()
    const running = run({ command: 'echo started; touch .running; sleep 100' }, { signal: controller.signal })
    await appeared('.running')
    controller.abort()
    expect(await running).toMatchObject({ isError: true, text: 'started\n(cancelled: the command was killed)' })
    expect(await bash('echo still here')).toBe('still here')
  })

  test('a cancelled one of long output tells where it is kept', async () => {
    const controller = new AbortController()
    const command = 'seq 1 20000; touch .printed; sleep 100'
    const running = run({ command }, { signal: controller.signal })
    await appeared('.printed')
    controller.abort()
    expect((await running).text).toMatch(/\/tmp\/reve-tool-output-\w+\.log[\s\S]*killed\)$/)
  })

  test('what is no UTF-8 is shown as such, and characters that come in two pieces are whole', async () => {
    expect(await bash("printf 'caf\\351 \\377\\n'")).toBe('caf\uFFFD \uFFFD')
    expect(await bash("printf '\\342\\202'; sleep 0.2; printf '\\254'")).toBe('€')
  })

  test('progress that is written over and over is shown by its end', async () => {
    expect(await bash('for i in 1 2 3 4 5 6 7 8; do printf "%s0%%\\r" $i; done; echo; printf "a\\r\\nb\\r\\n"')).toBe(
      '80% (7 earlier states of this line are left out)\na\r\nb',
    )
  })

  test('a long output is shown by head and tail, and kept whole in the VM', async () => {
    const text = await bash('seq 1 20000')
    expect(text.length).toBeLessThan(25_000)
    expect(text).toMatch(/^1\n2\n/)
    expect(text).toMatch(/\n20000$/)
    const [, cut, path = ''] =
      /… (\d+) characters \(\d+ lines\) are left out here\. The full output is in (\S+)/.exec(text) ?? []
    expect(Number(cut)).toBeGreaterThan(80_000)
    expect(path).toMatch(/^\/tmp\/reve-tool-output-\w+\.log$/)
    expect((await callTool(readTool(guest.vm), { path, offset: 19_999 })).text).toBe('19999  19999\n20000  20000')
    expect(await bash(`stat -c %a ${path}`)).toBe('600')
  })

  test('saved output is kept within bounds, the newest always', async () => {
    const { signal } = new AbortController()
    await bash('rm -f /tmp/reve-tool-output-*; touch -d "8 days ago" /tmp/reve-tool-output-old.log; touch /tmp/other')
    const limits = { files: 3, bytes: 80_000 }
    for (const size of [1000, 30_000, 30_000, 30_000]) await spill(guest.vm, 'x'.repeat(24_000 + size), signal, limits)
    expect(await bash('ls /tmp/reve-tool-output-*.log | wc -l; ls /tmp/other')).toBe('1\n/tmp/other')
    for (let index = 0; index < 4; index++) await spill(guest.vm, 'x'.repeat(24_001), signal, limits)
    expect(await bash('ls /tmp/reve-tool-output-*.log | wc -l')).toBe('3')
  })

  test('shows while it runs what it last wrote, at most five times a second', async () => {
    const shown: string[] = []
    const controller = new AbortController()
    const progress = (line: string): void => {
      shown.push(line)
      if (line === 'line 300') controller.abort()
    }
    const command = 'for i in $(seq 1 300); do echo line $i; done; sleep 100'
    const { text } = await run({ command }, { progress, signal: controller.signal })
    expect(text).toMatch(/cancelled/)
    expect(shown.at(-1)).toBe('line 300')
    expect(shown.length).toBeLessThan(200)
  })

  test('a command that is too long, or holds what no program takes, is an error of the call alone', async () => {
    expect(await run({ command: `: ${'x'.repeat(200_000)}` })).toMatchObject({
      isError: true,
      text: expect.stringContaining('Argument list too long'),
    })
    await expect(run({ command: 'echo \0' })).rejects.toMatchObject({ code: 'bad_spec' })
    expect(await bash('echo fine')).toBe('fine')
  })

  test('the host is not there', async () => {
    await writeFile(join(guest.workspace, 'here'), '')
    const text = await bash(
      `ls ${JSON.stringify(homedir())}/.cache/reve ${JSON.stringify(guest.workspace)} 2>&1; uname -n; ls here`,
    )
    expect(text).toContain('No such file')
    expect(text).toMatch(/reve\nhere$/)
  })
})
