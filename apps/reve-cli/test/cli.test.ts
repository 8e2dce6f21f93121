import { appendFile, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const only = async (folder: string): Promise<string> => {
  const [name = ''] = (await readdir(join(folder, '.reve', 'sessions'))).filter((file) => file.endsWith('.jsonl'))
  return join(folder, '.reve', 'sessions', name)
}

describe('without an agent', () => {
  test('prints its version and its help on standard output', async () => {
    const folder = await folderWith({})
    expect(await reve(['--version'], folder)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^reve \d+\.\d+\.\d+\n$/),
      stderr: '',
    })
    const help = await reve([], folder)
    expect(help).toMatchObject({ code: 0, stderr: '' })
    for (const command of ['init', 'info', 'run', 'exec', 'tool', 'sessions', 'doctor']) {
      expect(help.stdout).toContain(`  ${command} `)
      expect((await reve([command, '--help'], folder)).stdout).toMatch(new RegExp(`^usage: reve ${command}`))
    }
  })

  test('a usage error is on standard error, with where help is, and exits with 2', async () => {
    const folder = await folderWith({})
    expect(await reve(['rnu'], folder)).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('no command "rnu"'),
    })
    expect(await reve(['run', '--max-turns', 'x', 'p'], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('try: reve run --help'),
    })
  })

  test.each([['info'], ['run', 'hello'], ['tool'], ['sessions']])(
    'a folder that is no agent exits with 3: %s',
    async (...args) => {
      const folder = await folderWith({ 'main.c': '' })
      expect(await reve(args, folder)).toMatchObject({
        code: 3,
        stdout: '',
        stderr: expect.stringMatching(/not an agent directory: .*reve init/),
      })
      expect(await readdir(folder)).toEqual(['main.c'])
    },
  )

  test('reve exec says its own failure with 125', async () => {
    expect(await reve(['exec', 'true'], await folderWith({}))).toMatchObject({
      code: 125,
      stderr: expect.stringContaining('not an agent directory'),
    })
  })
})

test('init makes an agent in a folder with spaces and an emoji, and is idempotent', async () => {
  const folder = await folderWith({})
  const first = await reve(['init', 'my agent 🦊'], folder)
  expect(first).toMatchObject({ code: 0, stderr: '' })
  expect(first.stdout.split('\n')).toEqual([
    `initialised ${join(folder, 'my agent 🦊')}`,
    '  + agent.lua',
    '  + sandbox.lua',
    '  + tools/example.lua',
    '  + instructions.md',
    '  + models.yml',
    '  + workspace/AGENTS.md',
    '  + workspace/SOUL.md',
    '  + workspace/KNOWLEDGE.md',
    '  + workspace/HEARTBEAT.yml',
    '  + .gitignore',
    '',
    'edit instructions.md, then run reve here',
    '',
  ])
  const agent = join(folder, 'my agent 🦊')
  await appendFile(join(agent, 'instructions.md'), '\nBe brief.\n')
  const second = await reve(['init'], agent)
  expect(second.stdout).toContain('  · agent.lua (unchanged)')
  expect(second.stdout).toContain('  · instructions.md (changed; kept)')
  const info = await reve(['info'], agent)
  expect(info.code).toBe(0)
  expect(info.stdout.split('\n')).toEqual([
    `root      ${agent}`,
    'model     openai/gpt-5.6-luna',
    'thinking  low',
    'sandbox   debian:trixie-slim (2 cpu, 2048MB)',
    expect.stringMatching(/^egress {4}.*\bapi\.github\.com, .*\bgithub\.com, .*\braw\.githubusercontent\.com/),
    'tools     example',
    '',
  ])
  expect(await reve(['tool'], agent)).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^example {14}Summarize/),
  })
})

test('the repository itself is an agent', async () => {
  const root = fileURLToPath(new URL('../../..', import.meta.url))
  const info = await reve(['info', '--json'], root)
  expect([info.code, info.stderr]).toEqual([0, ''])
  expect(JSON.parse(info.stdout)).toMatchObject({ model: 'openai/gpt-5.6-luna', sandbox: { secrets: [] }, tools: [] })
})

describe('a run without a tool', () => {
  test('gives the answer alone on standard output, and goes on where it ended', async () => {
    const folder = await folderWith(agentFiles('- text: The first answer.\n- text: The second one.\n'))
    expect(await reve(['run', 'hello'], folder)).toMatchObject({ code: 0, stdout: 'The first answer.\n' })
    expect(await reve(['run', '--continue', 'and then?'], folder)).toMatchObject({
      code: 0,
      stdout: 'The second one.\n',
    })
    expect(await reve(['run', '--continue'], folder)).toMatchObject({
      code: 0,
      stdout: '',
      stderr: expect.stringContaining('nothing to continue'),
    })
    const third = await reve(['run', '--continue', 'more'], folder)
    expect(third).toMatchObject({ code: 1, stdout: '' })
    expect(third.stderr).toContain('2 turns')
  })

  test('takes its prompt from standard input, and needs one', async () => {
    const folder = await folderWith(agentFiles('- text: Seen.\n'))
    expect(await reve(['run'], folder, { stdin: 'look at this' })).toMatchObject({ code: 0, stdout: 'Seen.\n' })
    expect(await readFile(await only(folder), 'utf8')).toContain('look at this')
    expect(await reve(['run'], folder, { stdin: '  \n' })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('there is no prompt'),
    })
  })

  test('--json prints versioned events, one a line', async () => {
    const folder = await folderWith(agentFiles('- text: Hi.\n'))
    const { code, stdout } = await reve(['run', '--json', 'hello'], folder)
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { readonly v: number; readonly type: string })
    expect(code).toBe(0)
    expect(new Set(events.map(({ v }) => v))).toEqual(new Set([1]))
    expect(events.map(({ type }) => type)).toEqual(
      expect.arrayContaining(['run_started', 'turn_started', 'text', 'message', 'run_finished']),
    )
  })

  test('an answer that was cut off is given, and said to be cut off', async () => {
    const folder = await folderWith(agentFiles('- { text: Half of, stop: length }\n- { text: "", stop: length }\n'))
    const cut = await reve(['run', 'hello'], folder)
    expect([cut.code, cut.stdout]).toEqual([0, 'Half of\n'])
    expect(cut.stderr).toContain('the answer ends where the model may write no more at once (maxTokens in models.yml)')
    // All that the model may write can go into a thought.
    const nothing = await reve(['run', '--continue', 'go on'], folder)
    expect(nothing.code).toBe(0)
    expect(nothing.stderr).toContain('the answer ends where the model may write no more')
  })

  test("a model's escape sequences do not reach a terminal, and a call of a tool that does not exist is shown", async () => {
    const folder = await folderWith(
      agentFiles('- text: "\\e]0;owned\\a\\e[2Jcalm"\n  calls: [{ name: "no\\e[31mpe" }]\n- text: end\n'),
    )
    const { code, stdout, stderr } = await reve(['run', 'hello'], folder)
    expect([code, stdout]).toEqual([0, 'end\n'])
    expect(stderr).toContain('◆ calm')
    expect(stderr).toContain('▸ nope (not run)')
    expect(stderr).not.toContain('\u001b')
  })
})

describe('a model that cannot be used exits with 3', () => {
  test.each([
    ['an unknown one', ['run', '--model', 'demo/other', 'x'], 'demo/scripted'],
    ['one whose key is not set', ['run', '--model', 'hosted/m', 'x'], '$SOME_KEY'],
  ])('%s', async (_, args, named) => {
    const folder = await folderWith(agentFiles('- text: x\n'))
    await appendFile(
      join(folder, 'models.yml'),
      '  hosted:\n    api: openai-completions\n    baseUrl: http://127.0.0.1:9\n    apiKey: $SOME_KEY\n    models: [{ id: m }]\n',
    )
    const run = await reve(args, folder, { env: { SOME_KEY: '' } })
    expect(run).toMatchObject({ code: 3, stdout: '', stderr: expect.stringContaining(named) })
  })

  test('a literal key in models.yml is refused with its place and without its value', async () => {
    const folder = await folderWith(agentFiles('- text: x\n'))
    await writeFile(
      join(folder, 'models.yml'),
      'providers:\n  demo:\n    api: openai-responses\n    baseUrl: https://api.example\n    apiKey: sk-sentinel-literal\n    models: [{ id: scripted }]\n',
    )
    const run = await reve(['run', 'x'], folder)
    expect(run).toMatchObject({ code: 3, stderr: expect.stringContaining('models.yml:5:13') })
    expect(run.stderr + run.stdout).not.toContain('sk-sentinel-literal')
  })
})

describe('a session on disk', () => {
  test('a torn last line is mended, said, and the conversation goes on', async () => {
    const folder = await folderWith(agentFiles('- text: One.\n- text: Two.\n'))
    await reve(['run', 'hello'], folder)
    await appendFile(await only(folder), '{"kind":"entry","id":"e_torn","te')
    const run = await reve(['run', '--continue', 'on'], folder)
    expect(run).toMatchObject({
      code: 0,
      stdout: 'Two.\n',
      stderr: expect.stringContaining('last line was incomplete and was cut'),
    })
    expect(await reve(['sessions', 'verify'], folder)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('good'),
    })
  })

  test('a broken line in the middle is refused with 6, its place, and no byte changed; salvage brings the rest back', async () => {
    const folder = await folderWith(agentFiles('- text: One.\n- text: Two.\n'))
    await reve(['run', 'hello'], folder)
    const file = await only(folder)
    const lines = (await readFile(file, 'utf8')).split('\n')
    await writeFile(file, lines.toSpliced(3, 1, 'not json').join('\n'))
    const before = await readFile(file)
    const run = await reve(['run', '--continue', 'on'], folder)
    expect(run).toMatchObject({ code: 6, stdout: '', stderr: expect.stringMatching(/:4|line 4/) })
    expect(await readFile(file)).toEqual(before)
    expect(await reve(['sessions', 'verify'], folder)).toMatchObject({
      code: 6,
      stdout: expect.stringContaining('line 4'),
    })
    expect(await reve(['sessions', 'salvage', file, 'saved.jsonl'], folder)).toMatchObject({ code: 0 })
    expect(await reve(['sessions', 'verify', 'saved.jsonl'], folder)).toMatchObject({ code: 0 })
  })

  test('a session that another process works in is refused with 5, naming it', async () => {
    const folder = await folderWith(agentFiles('- { text: Slow., delayMs: 60000 }\n'))
    let slow: { readonly pid: number | undefined; readonly kill: () => void } | undefined
    const first = reve(['run', 'hello'], folder, {
      started: (child) => (slow = { pid: child.pid, kill: () => child.kill('SIGKILL') }),
    })
    while (!(await readFile(await only(folder).catch(() => ''), 'utf8').catch(() => '')).includes('task_attempt')) {
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    expect(await reve(['run', '--continue', 'on'], folder)).toMatchObject({
      code: 5,
      stderr: expect.stringContaining(`${slow?.pid}`),
    })
    slow?.kill()
    expect((await first).signal).toBe('SIGKILL')
    // A killed run is named to whoever starts another session beside it.
    const other = await reve(['run', '--model', 'demo/none', 'x'], folder)
    expect(other.stderr).toContain('reve run --continue')
  })

  test('Ctrl-C stops a run in order and keeps it', async () => {
    const folder = await folderWith(agentFiles('- { text: Slow., delayMs: 60000 }\n- text: Back.\n'))
    const run = reve(['run', 'hello'], folder, {
      started: (child) => {
        const poll = setInterval(() => {
          only(folder)
            .then((file) => readFile(file, 'utf8'))
            .then((text) => {
              if (!text.includes('task_attempt')) return
              clearInterval(poll)
              child.kill('SIGINT')
            })
            .catch(() => undefined)
        }, 50)
      },
    })
    expect(await run).toMatchObject({ code: 130, stderr: expect.stringContaining('reve run --continue') })
    expect(await readFile(await only(folder), 'utf8')).toMatch(/abort_requested[\s\S]*operation_finished/)
  })
})
