import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { folderWith } from '../run-cli.ts'
import { pause, rowsOf, started, until } from './screen.ts'

const markdown = `- text: |
    # Results

    A **bold** word, \`code\`, and 日本語 with 👩‍👧.

    1. one
    2. two
       - nested

    | name | size |
    |---|--:|
    | a.ts | 12 |
    | long-name.ts | 3 |

    > quoted text

    \`\`\`ts
    const a = 'x' // why
    \`\`\`
`

/** Messages of the newest session of a folder, as its lines hold them. */
async function logOf(folder: string): Promise<string> {
  const sessions = join(folder, '.reve/sessions')
  const files = (await readdir(sessions)).filter((name) => name.endsWith('.jsonl'))
  return (await Promise.all(files.map((name) => readFile(join(sessions, name), 'utf8')))).join('')
}

describe('a conversation', () => {
  test.each([40, 80, 120])('is shown at %i columns', async (columns) => {
    const { type, shows, all, folder } = await started({ turns: markdown, columns, rows: 30 })
    type('show me\r')
    await shows("const a = 'x' // why")
    await until(() => !all().includes('Working'), all, 'the run ends')
    await pause(100)
    expect(
      all()
        .replace(/\(\d+ms\)/, '(0ms)')
        .replace(folder.slice(-24), '~/agent'),
    ).toMatchSnapshot()
  })

  test('goes on where it was left, with its end shown', async () => {
    const first = await started({ turns: '- text: First answer.\n- text: Second answer.\n' })
    first.type('one\r')
    await first.shows('First answer.')
    await first.quit()
    const second = await started({ folder: first.folder })
    await second.shows('First answer.')
    second.type('two\r')
    await second.shows('Second answer.')
    expect(second.all().match(/First answer/g)).toHaveLength(1)
  })

  test('takes what was typed before it is open, in order', async () => {
    const { type, shows, folder } = await started({ turns: '- { text: Ok., delayMs: 50 }\n- text: Fine.\n' })
    type('early one\r')
    await shows('Ok.')
    expect(await logOf(folder)).toContain('early one')
  })

  test('a session that another process writes is shown and not touched; /new starts another', async () => {
    const first = await started({ turns: '- text: Mine.\n' })
    first.type('hello\r')
    await first.shows('Mine.')
    const second = await started({ folder: first.folder })
    await second.shows(`read only: process`)
    await second.shows(`in process ${process.pid}. This is what it says so far`)
    await second.shows('Mine.')
    second.type('does it take this?\r')
    await second.shows('read only: /new starts a session of your own')
    second.type('\u0015/new\r')
    await second.shows('✓ a new session')
    second.type('hello again\r')
    await until(
      async () =>
        (await readdir(join(first.folder, '.reve/sessions'))).filter((name) => name.endsWith('.jsonl')).length === 2,
      second.all,
      'there are two sessions',
    )
  })

  test('an agent that is wrong is told, and nothing is lost', async () => {
    const { shows, quit } = await started({ files: { 'agent.lua': 'agent { modle = "x" }' } })
    await shows('agent.lua:1: modle: unknown key (did you mean "model"?)')
    expect(await quit()).toMatchObject({ refused: { code: 'bad_config' } })
  })

  test('without a microVM the agent does not work, and says why', async () => {
    const { type, shows } = await started({
      checkVm: async () => {
        throw new Error('no microVM can boot here')
      },
    })
    await shows('✗ no microVM can boot here')
    type('hello\r')
    await shows('the agent does not work here')
  })
})

const slow =
  '- { text: "one two three four five six seven eight nine ten ", chunk: 4, delayMs: 400 }\n- text: Second.\n- text: Third.\n- text: Fourth.\n'
const working = `- calls: [{ name: wait }]\n- text: After the tool.\n- text: Later.\n- text: Last.\n`
const waitTool = {
  'tools/wait.lua': `tool("wait", { description = "Waits", run = function(args, ctx)
    local t = os.time() + 2
    ctx.progress("line one\\nline two")
    while os.time() < t do end
    return "waited"
  end })`,
}

describe('while it works', () => {
  test('Enter steers, Alt-Enter follows up, the queue is seen and taken back', async () => {
    const { type, shows, gone, folder } = await started({ turns: working, files: waitTool })
    type('go\r')
    await shows('Running wait')
    await shows('│ line two')
    type('a steer\r')
    await shows('a steer · steers')
    type('a follow-up\u001b\r')
    await shows('a follow-up · follows up')
    type('take this back\r')
    await shows('take this back · steers')
    type('\u001b[1;3A')
    await gone('take this back · steers')
    await shows('⟩ take this back')
    await shows('After the tool.')
    await shows('Later.')
    const log = await logOf(folder)
    expect(log.indexOf('a steer')).toBeGreaterThan(0)
    expect(log).toContain('a follow-up')
  })

  test('Esc interrupts at once and what came is kept; Enter goes on', async () => {
    const { type, shows } = await started({ turns: slow })
    type('go\r')
    await shows('Working')
    type('\u001b')
    await shows('interrupted; what was done is kept')
    await shows('Enter goes on')
    type('\r')
    await shows('nine ten')
  })

  test('Esc twice clears what is written, Ctrl-C twice leaves', async () => {
    const { type, shows, gone, ended } = await started()
    type('some words')
    await shows('⟩ some words')
    type('\u001b')
    await shows('Esc again clears')
    await pause(60)
    type('\u001b')
    await gone('some words')
    type('\u0003')
    await shows('Ctrl-C again leaves')
    type('\u0003')
    expect(await ended).toMatchObject({ reason: 'quit' })
  })
})

describe('the prompt', () => {
  test('a paste of a megabyte is one chip, and is sent whole', async () => {
    const { type, shows, folder } = await started()
    const text = `begin ${'x'.repeat(999)}\n`.repeat(1000)
    type(`look: \u001b[200~${text}\u001b[201~`)
    await shows('look: [pasted 1001 lines]')
    type('\r')
    await shows('Hello.')
    expect(await logOf(folder)).toContain(JSON.stringify(text).slice(1, 5000))
  })

  test('ten thousand keys at once: none is lost, and the cursor stands behind the last', async () => {
    const { type, shows, all, screen } = await started({ columns: 80 })
    const words = Array.from({ length: 2000 }, (_, at) => `w${at}`).join(' ')
    for (const character of words) type(character)
    await shows('w1999')
    type('\u001b[1;5H')
    await pause(30)
    type('START ')
    await shows('START w0 w1')
    expect(all()).toContain('START')
    expect(screen.frames.length).toBeLessThan(2000)
  })

  test('many lines, by Shift-Enter, Ctrl-J and a backslash; undo; history', async () => {
    const { type, shows, gone } = await started({ turns: '- text: One.\n- text: Two.\n' })
    type('a\u001b[13;2ub\nc\\\rd')
    await shows('⟩ a\n  b\n  c\n  d')
    type('\r')
    await shows('One.')
    type('second\r')
    await shows('Two.')
    await gone('Working')
    type('\u001b[A')
    await shows(/⟩ second$/m)
    type('\u001b[A')
    await shows(/⟩ a\n {2}b\n {2}c\n {2}d\n {2}demo/)
    type('\u0015\u0015\u0015\u0015\u0015\u0015\u0015xyz')
    await shows('⟩ xyz')
    type('\u001f')
    await gone('⟩ xyz')
  })

  test('an editor of one’s own', async () => {
    const { type, shows } = await started({
      editFile: async (file) => writeFile(file, `${await readFile(file, 'utf8')} and more\nof it\n`),
    })
    type('some')
    await shows('⟩ some')
    type('\u0007')
    await shows('⟩ some and more\n  of it')
  })
})

describe('completion', () => {
  const files = {
    'workspace/src/parser.ts': 'x'.repeat(2048),
    'workspace/src/printer.ts': '',
    'workspace/.hidden/secret.ts': '',
    'workspace/with space.txt': '',
  }

  test('@ gives files with their sizes, never hidden ones; Enter accepts before it sends', async () => {
    const { type, shows, all } = await started({ files })
    type('look at @par')
    await shows(/❯ src\/parser\.ts +2\.0 KB/)
    type('\r')
    await shows('⟩ look at @src/parser.ts')
    type('and @secret')
    await pause(100)
    expect(all()).not.toContain('.hidden')
    type('\u0015@with')
    await shows('❯ with space.txt')
    type('\t')
    await shows('⟩ @"with space.txt"')
    type('\u0015@[(.*')
    await pause(50)
    type('\u0015ok\r')
    await shows('Hello.')
  })

  test('/ gives commands and their arguments; a name that is none is told with what it is near to', async () => {
    const { type, shows } = await started()
    type('/thi')
    await shows('❯ /thinking')
    type('\t')
    await shows('❯ off')
    type('hi\t\r')
    await shows('high')
    type('/helpp\r')
    await shows('there is no command /helpp; did you mean /help?')
    type('/compactfoo\r')
    await shows('there is no command /compactfoo')
  })

  test('files that a run made can be named after it', async () => {
    const { type, shows, folder, gone } = await started()
    await writeFile(join(folder, 'workspace/brand-new.txt'), '')
    type('go\r')
    await shows('Hello.')
    await gone('Working')
    type('@brand')
    await shows('❯ brand-new.txt')
  })
})

describe('commands', () => {
  test('/tree labels, goes back and says it again; /rewind lists', async () => {
    const { type, shows, gone, all } = await started({ turns: '- text: One.\n- text: Two.\n- text: Three.\n' })
    type('first\r')
    await shows('One.')
    type('second\r')
    await shows('Two.')
    await gone('Working')
    type('/tree\r')
    await shows('── The conversation · 4 entries')
    type('\u001b[1;2A')
    await pause(30)
    type('l')
    await shows('label: ▏')
    type('here\r')
    await shows('[here] second')
    type('\r')
    await shows('You said: second')
    type('\r')
    await shows('the conversation goes on from there')
    await shows('⟩ second')
    type(' changed\r')
    await until(() => all().split('Two.').length === 3, all, 'another answer')
    await gone('Working')
    type('/rewind \t')
    await shows('here')
    type('\u001b')
    await pause(60)
    type('\u0015/tree\r')
    await shows('── The conversation · 6 entries')
    expect(all()).toContain('╰')
  })

  test('of the agent’s own Lua stand beside them', async () => {
    const { type, shows } = await started({
      turns: '- text: Explained.\n',
      files: {
        'tools/c.lua': `command("greet", { description = "Greets", args = "<who>", run = function(a) return "hello **" .. a .. "**" end })
          command("why", { description = "Asks", run = function() return { prompt = "Explain it" } end })
          command("bad", { description = "Breaks", run = function() error("broken") end })`,
      },
    })
    type('/gre')
    await shows('/greet <who>')
    type('\tyou\r')
    await shows('hello you')
    type('/why\r')
    await shows('⟩ Explain it')
    await shows('Explained.')
    type('/bad\r')
    await shows('tools/c.lua:3: broken')
  })

  test('/name, /fork, /resume, /new, /cost, /tools, /sandbox, /export, /skills, /queue and /help answer', async () => {
    const { type, shows } = await started({ turns: '- text: One.\n' })
    type('hello\r')
    await shows('One.')
    for (const [command, answer] of [
      ['/name the parser', 'this session is called "the parser" now'],
      ['/cost', 'this session'],
      ['/tools', 'bash'],
      ['/sandbox', 'microVM'],
      ['/skills', 'None:'],
      ['/queue', 'nothing waits'],
      ['/copy', 'in the clipboard'],
      ['/export', 'cannot export'],
      ['/fork', 'a new session begins with the 2 entries of this one'],
      ['/help', 'Keys and commands'],
      ['/theme nope', 'nope'],
    ] as const) {
      type(`${command}\r`)
      await shows(answer)
    }
    type('/resume \t')
    await pause(100)
    type('\u0015/resume\r')
    await shows('── Sessions')
    type('\u001b')
  })

  test('/quit leaves, and the terminal is as it was', async () => {
    const { type, ended, quit, keyboard } = await started()
    expect(keyboard.raw).toBe(true)
    type('/quit\r')
    expect(await ended).toMatchObject({ reason: 'quit', refused: undefined })
    const { direct } = await quit()
    for (const mode of ['\u001b[?2004l', '\u001b[<u', '\u001b[?25h', '\u001b[?7h']) expect(direct).toContain(mode)
    expect(keyboard.raw).toBe(false)
  })
})

describe('the screen', () => {
  test('a new width leaves one prompt, and no row is lost', async () => {
    const { type, shows, screen, gone } = await started({ turns: '- text: An answer.\n' })
    type('hello\r')
    await shows('An answer.')
    await gone('Working')
    for (const columns of [40, 120, 25, 80]) {
      screen.resize(columns, 24)
      await pause(80)
    }
    type('x')
    await shows('⟩ x')
    const rows = rowsOf(screen.xterm)
    expect(rows.filter((row) => row.startsWith('⟩ x'))).toHaveLength(1)
    expect(rows.filter((row) => row.includes('An answer.'))).toHaveLength(1)
  })

  test('no colours with NO_COLOR, and none of the model’s own escape sequences', async () => {
    const { type, shows, screen } = await started({
      env: { NO_COLOR: '1' },
      turns: '- text: "\\e]0;owned\\a\\e[31mred\\e[2J calm"\n',
    })
    type('hello\r')
    await shows('calm')
    expect(screen.bytes).not.toMatch(/\u001b\[[0-9;]*3[0-9][;m]/)
    expect(screen.bytes).not.toContain('owned')
  })

  test('light and dark themes, and one of a file', async () => {
    const { type, shows, screen } = await started({
      env: { COLORTERM: 'truecolor' },
      files: { 'theme.yml': 'base: light\ncolors: { accent: "#123456" }\n' },
    })
    await shows('the sandbox is ready')
    expect(screen.bytes).toContain('38;2;18;52;86')
    type('/theme dark\r')
    await until(
      () => screen.bytes.includes('38;2;90;160;255'),
      () => '',
      'the accent of the dark theme',
    )
  })

  test('tiny and huge terminals', async () => {
    for (const [columns, rows] of [
      [6, 2],
      [10, 3],
      [300, 100],
    ] as const) {
      const { type, screen, quit } = await started({ columns, rows, turns: '- text: ok\n' }).catch(() => {
        throw new Error(`at ${columns} by ${rows}`)
      })
      type('hi\r')
      await until(
        () => rowsOf(screen.xterm).join('').includes('ok'),
        () => rowsOf(screen.xterm).join('\n'),
        'the answer',
      )
      screen.resize(1, 2)
      type('more')
      await pause(50)
      await quit()
    }
  })

  test('what a frame takes does not grow with the conversation', async () => {
    const block = 'A paragraph of some words that is neither long nor short.\n\n'
    const turns = [1, 2, 3]
      .map((turn) => `- { text: ${JSON.stringify(`${block.repeat(turn === 2 ? 5000 : 20)}end ${turn}`)}, chunk: 40 }\n`)
      .join('')
    const { type, shows, screen, gone } = await started({ turns })
    const most = async (prompt: string, end: string): Promise<number> => {
      const before = screen.frames.length
      type(`${prompt}\r`)
      await shows(end)
      await gone('Writing')
      return Math.max(...screen.frames.slice(before))
    }
    await most('one', 'end 1')
    await most('two', 'end 2')
    const third = await most('three', 'end 3')
    // The conversation has 300,000 bytes by then; a frame has what came since the one before it, 400 rows at most.
    expect(third).toBeLessThan(60_000)
  }, 120_000)
})

describe('what is shown of the work', () => {
  test('long output is folded, and whole with Ctrl-O', async () => {
    const { type, shows, all } = await started({
      turns: '- calls: [{ name: many }]\n- text: Done.\n',
      files: {
        'tools/many.lua': `tool("many", { description = "d", run = function()
          local t = {} for i = 1, 60 do t[i] = "row " .. i end return table.concat(t, "\\n") end })`,
      },
    })
    type('go\r')
    await shows('Done.')
    await shows('more lines · Ctrl-O shows them')
    expect(all()).not.toContain('row 30')
    type('\u000f')
    await shows('── many')
    await shows('row 12')
    type('\u001b[F')
    await shows('row 60')
  })

  test('sub-agents are a strip while they work, with a view of each', async () => {
    const { type, shows, gone } = await started({
      turns: `- calls: [{ name: task, arguments: { prompt: "look into the parser" } }]
- text: The parent is done.
`,
      files: {
        'models.yml': `providers:
  demo:
    api: scripted
    models:
      - id: scripted
        turns:
          - { calls: [{ name: task, arguments: { prompt: "look into the parser" } }], delayMs: 50 }
          - { text: "The end.", delayMs: 700 }
`,
      },
    })
    type('go\r')
    await shows(/⤷ .*working|⤷ .*writing|⤷ .*running task|⤷ .*starting/)
    await gone('Working')
    type('/agents\r')
    await shows('── Sub-agents')
  })

  test('a heartbeat that has something to say is seen', async () => {
    const folder = await folderWith({
      'agent.lua': 'agent { model = "demo/m" }\n',
      'models.yml':
        'providers: { demo: { api: scripted, models: [{ id: m, turns: [{ text: "Message: the build is red" }] }] } }\n',
      'workspace/HEARTBEAT.yml': 'tasks: [{ name: watch, every: 1h, prompt: look }]\n',
    })
    const { shows } = await started({ folder, options: { services: true } })
    await shows('heartbeats: +watch')
  })

  test('a defect leaves the terminal as it was', async () => {
    const { world, quit, shows } = await started()
    await shows('the sandbox is ready')
    world.emit('uncaughtExceptionMonitor')
    const { direct } = await quit()
    for (const mode of ['\u001b[?2004l', '\u001b[<u', '\u001b[?25h']) expect(direct).toContain(mode)
  })

  test('a warning of Node is a notice, not drawn over', async () => {
    const { world, shows } = await started()
    world.emit('warning', new Error('something is deprecated'))
    await shows('! Error: something is deprecated')
  })

  test('the cursor stands where is typed, behind wide characters too', async () => {
    const { type, shows, screen, all } = await started()
    type('日本a')
    await shows('⟩ 日本a')
    await until(() => screen.xterm.buffer.active.cursorX === 7, all, 'the cursor is behind the text')
    type('\u001b[D')
    await until(() => screen.xterm.buffer.active.cursorX === 6, all, 'the cursor is before the a')
  })
})

test('garbage for a keyboard crashes nothing', async () => {
  const { type, shows, keyboard } = await started()
  let seed = 7
  for (let round = 0; round < 200; round++) {
    const noise = Uint8Array.from({ length: 50 }, () => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31
      const byte = (seed >> 16) & 0xff
      // Keys that leave, stop or open an editor are somebody's wish.
      return [3, 4, 26, 13].includes(byte) ? 32 : byte
    })
    keyboard.emit('data', noise)
  }
  await pause(200)
  type('\u001b[201~')
  await pause(100)
  for (let at = 0; at < 8; at++) {
    type('\u001b')
    await pause(60)
  }
  type('\u0015\u0015/help\r')
  await shows('Keys and commands')
})

test('a folder that is no agent is told', async () => {
  const { shows } = await started({ folder: await folderWith({}) })
  await shows('not an agent directory')
})
