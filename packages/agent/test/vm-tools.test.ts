import { mkdir, mkdtemp, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ToolContext } from '@reve/harness'
import type { JsonObject } from '@reve/providers/model'
import { createMicroVm, probeBackends, type MicroVm } from '@reve/sandbox-microvm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bashTool, globTool, grepTool, lsTool } from '../src/command-tools.ts'
import { editTool, readTool, writeTool } from '../src/file-tools.ts'

/** The cache that `npm start` fills: the image is built once a machine. */
const host = {
  cacheDir: join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'reve'),
  runtimeDir: join('/tmp', `reve-${process.getuid?.() ?? 0}`),
}
const [backend] = (await probeBackends(host)).filter(({ ok }) => ok)
if (backend === undefined) process.stderr.write('no microVM boots here: the tools that run in one are not tested\n')

describe.skipIf(backend === undefined)('tools in the guest', () => {
  let vm: MicroVm
  let workspace: string

  beforeAll(async () => {
    const root = await mkdtemp(join(tmpdir(), 'vm-tools-'))
    workspace = join(root, 'workspace')
    await mkdir(workspace)
    vm = createMicroVm(
      {
        name: 'vm-tools',
        stateDir: join(root, 'vm'),
        image: { ref: 'debian:trixie-slim', packages: ['git', 'python3'] },
        cpus: 2,
        memoryMiB: 512,
        diskMiB: 16_384,
        mounts: [{ host: workspace, guest: '/workspace' }],
        workdir: '/workspace',
        env: {},
        egress: { kind: 'none' },
        bootstrap: [],
        idleStopMs: 60_000,
      },
      host,
    )
    await vm.start()
  })
  afterAll(() => vm.stop())

  const context = (signal = new AbortController().signal): ToolContext => ({
    signal,
    lane: 'main',
    runId: 'run_1',
    toolCallId: 'call_1',
    idempotencyKey: 'e_1',
    progress: () => undefined,
    subagent: () => Promise.reject(new Error('there are no sub-agents here')),
  })
  const call = async (make: typeof bashTool, args: JsonObject, signal?: AbortSignal) => {
    const { content, isError = false } = await make(vm).run(args, context(signal))
    return { text: typeof content === 'string' ? content : JSON.stringify(content), isError }
  }

  describe('read', () => {
    test('numbers lines, from an offset, up to a limit, and says how to go on', async () => {
      await writeFile(join(workspace, 'ten'), Array.from({ length: 10 }, (_, index) => `line ${index + 1}\n`).join(''))
      expect((await call(readTool, { path: 'ten', limit: 2 })).text).toBe(
        '    1  line 1\n    2  line 2\n\n[8 more lines in file. Use offset=3 to continue.]',
      )
      expect((await call(readTool, { path: 'ten', offset: 9 })).text).toBe('    9  line 9\n   10  line 10')
      expect((await call(readTool, { path: 'ten', offset: -5, limit: 1 })).text).toContain('    1  line 1')
      expect(await call(readTool, { path: 'ten', offset: 11 })).toEqual({
        text: 'Offset 11 is beyond end of file (10 lines total)',
        isError: true,
      })
    })

    test('an unfinished last line counts, an empty file is one', async () => {
      await writeFile(join(workspace, 'unfinished'), 'a\nb')
      await writeFile(join(workspace, 'empty'), '')
      expect((await call(readTool, { path: 'unfinished' })).text).toBe('    1  a\n    2  b')
      expect((await call(readTool, { path: 'unfinished', offset: 2 })).text).toBe('    2  b')
      expect((await call(readTool, { path: 'empty' })).text).toBe('(empty file)')
    })

    test('names that look like options, have spaces, or are in another language', async () => {
      for (const name of ['-n', 'two words', 'ファイル', "it's"]) {
        await writeFile(join(workspace, name), `in ${name}\n`)
        expect((await call(readTool, { path: name })).text).toBe(`    1  in ${name}`)
      }
    })

    test('what is missing, a folder, or no text is told', async () => {
      await writeFile(join(workspace, 'binary'), new Uint8Array([1, 0, 2, 255]))
      expect(await call(readTool, { path: 'missing' })).toMatchObject({
        isError: true,
        text: expect.stringContaining('no such file'),
      })
      expect(await call(readTool, { path: '/etc' })).toMatchObject({
        isError: true,
        text: expect.stringContaining('is a directory'),
      })
      expect(await call(readTool, { path: 'binary' })).toMatchObject({
        isError: true,
        text: expect.stringContaining('not UTF-8'),
      })
    })
  })

  describe('write and edit', () => {
    test('make folders, keep modes, replace the target of a link', async () => {
      expect((await call(writeTool, { path: 'deep/er/file', content: 'é\n' })).text).toBe(
        'wrote 3 bytes to deep/er/file',
      )
      expect(await readFile(join(workspace, 'deep/er/file'), 'utf8')).toBe('é\n')
      await writeFile(join(workspace, 'script'), 'echo old\n', { mode: 0o755 })
      await symlink('script', join(workspace, 'alias'))
      expect((await call(editTool, { path: 'alias', old: 'old', new: 'new' })).text).toBe('edited alias')
      expect(await readFile(join(workspace, 'script'), 'utf8')).toBe('echo new\n')
      expect((await stat(join(workspace, 'script'))).mode & 0o777).toBe(0o755)
      expect((await call(writeTool, { path: '/tmp/in-the-guest', content: 'x' })).isError).toBe(false)
    })

    test('an edit that is ambiguous or finds nothing changes nothing', async () => {
      await writeFile(join(workspace, 'twice'), 'x\nx\n')
      expect(await call(editTool, { path: 'twice', old: 'x', new: 'y' })).toEqual({
        text: 'that text appears 2 times (lines 1, 2); include enough context to make it unique',
        isError: true,
      })
      expect(await call(editTool, { path: 'twice', old: 'z', new: 'y' })).toMatchObject({ isError: true })
      expect(await readFile(join(workspace, 'twice'), 'utf8')).toBe('x\nx\n')
      expect((await call(editTool, { path: 'twice', old: 'x', new: 'y', replace_all: true })).text).toBe(
        'edited twice in 2 places',
      )
      expect(await call(editTool, { path: 'missing', old: 'x', new: 'y' })).toMatchObject({ isError: true })
    })
  })

  describe('bash', () => {
    test('gives both streams, and the code when it is not 0', async () => {
      expect(await call(bashTool, { command: 'echo out; echo err >&2; exit 3' })).toEqual({
        text: 'out\nerr\n(exit 3)',
        isError: true,
      })
      expect(await call(bashTool, { command: 'true' })).toEqual({ text: '(no output)', isError: false })
      expect((await call(bashTool, { command: 'pwd; echo $0' })).text).toBe('/workspace\nsh')
    })

    test('ends a command that takes too long and says what still ran', async () => {
      const { text, isError } = await call(bashTool, { command: 'echo before; sleep 100', timeout_seconds: 1 })
      expect(isError).toBe(true)
      expect(text).toMatch(/^before\n\(timed out after 1 s.*sleep/)
    })

    test('a cancelled one keeps its output, and the VM serves the next', async () => {
      const controller = new AbortController()
      const running = call(bashTool, { command: 'echo started; touch .running; sleep 100' }, controller.signal)
      while (!(await stat(join(workspace, '.running')).catch(() => undefined)))
        await new Promise((done) => setTimeout(done, 20))
      controller.abort()
      expect(await running).toMatchObject({ isError: true, text: 'started\n(cancelled: the command was killed)' })
      expect((await call(bashTool, { command: 'echo still here' })).text).toBe('still here')
    })

    test('a long output is shown by head and tail, and kept whole in the VM', async () => {
      const { text } = await call(bashTool, { command: 'seq 1 20000' })
      expect(text.length).toBeLessThan(25_000)
      expect(text).toMatch(/^1\n2\n/)
      expect(text).toMatch(/\n20000$/)
      const [path = ''] = /\/tmp\/reve-tool-output-\w+\.log/.exec(text) ?? []
      expect((await call(bashTool, { command: `wc -l <${path}` })).text.trim()).toBe('19999')
    })

    test('the host is not there', async () => {
      const { text } = await call(bashTool, {
        command: `ls ${JSON.stringify(homedir())}/.cache/reve ${JSON.stringify(workspace)} 2>&1; uname -n`,
      })
      expect(text).toContain('No such file')
      expect(text).toContain('reve')
    })
  })

  test('ls, glob and grep find what is there, whatever the pattern begins with', async () => {
    await mkdir(join(workspace, 'search/sub'), { recursive: true })
    await writeFile(join(workspace, 'search/sub/needle.txt'), 'hay\n--flag needle\n')
    expect((await call(lsTool, { path: 'search' })).text).toContain('sub')
    expect((await call(globTool, { pattern: 'needle.*' })).text).toContain('search/sub/needle.txt')
    expect((await call(grepTool, { pattern: '--flag', path: 'search' })).text).toMatch(/needle\.txt:2:--flag needle/)
    expect((await call(grepTool, { pattern: 'nowhere', path: 'search' })).text).toBe('(nothing found)')
    expect(await call(grepTool, { pattern: 'x', path: 'nowhere' })).toMatchObject({ isError: true })
  })
})
