import { spawn, spawnSync } from 'node:child_process'
import { text as readAll } from 'node:stream/consumers'
import { describe, expect, test } from 'vitest'
import { agentFiles, folderWith, main, reve } from './run-cli.ts'

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null'], { stdio: 'ignore' }).status === 0
if (!hasScript)
  process.stderr.write('script (util-linux) cannot be used here: what a terminal shows is not looked at\n')

/** What a terminal gets of a command: both streams, as a user sees them. */
async function onTerminal(args: string, folder: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const { NO_COLOR: _, ...others } = process.env
  const child = spawn(
    'script',
    ['-qec', `'${process.execPath}' --conditions=@reve/source '${main}' ${args}`, '/dev/null'],
    {
      cwd: folder,
      env: { ...others, TERM: 'xterm-256color', ...env },
      stdio: ['ignore', 'pipe', 'ignore'],
    },
  )
  return readAll(child.stdout)
}

const colour = /\u001b\[\d+m/
const agent = () => folderWith(agentFiles('- calls: [{ name: nope }]\n- { text: The answer., delayMs: 300 }\n'))

describe.skipIf(!hasScript)('on a terminal', () => {
  test('there are colours and a moving line, which is gone at the end', async () => {
    const shown = await onTerminal('run hello', await agent())
    expect(shown).toMatch(colour)
    expect(shown).toContain('· thinking')
    expect(shown.slice(shown.lastIndexOf('\u001b[K'))).toMatch(/^\u001b\[K(?:The answer\.\r\n)?/)
    expect(shown).toContain('The answer.\r\n')
  })

  test.each([{ NO_COLOR: '1' }, { TERM: 'dumb' }])('there are no colours with %j', async (env) => {
    const shown = await onTerminal('run hello', await agent(), env)
    expect(shown).not.toMatch(colour)
    expect(shown).toContain('▸ nope')
  })

  test('what a session holds shows as text', async () => {
    const folder = await folderWith(agentFiles('- text: "\\e]0;owned\\a\\e[2Jcalm \\u202E"\n'))
    await reve(['run', 'hello \u001b[31m'], folder)
    const shown = await onTerminal('sessions show', folder)
    expect(shown).toContain('calm')
    expect(shown).not.toMatch(/[\u001b\u0007\u202e]/)
    for (const format of ['md', 'json', 'html']) {
      const exported = await onTerminal(`sessions export .reve/sessions/*.jsonl --format ${format}`, folder)
      expect(exported).toContain('calm')
      expect(exported).not.toMatch(/[\u001b\u0007\u202e]/)
    }
  })
})

test('elsewhere there is neither, and standard output has the result alone', async () => {
  const { stdout, stderr } = await reve(['run', 'hello'], await agent(), { env: { TERM: 'xterm-256color' } })
  expect(stdout).toBe('The answer.\n')
  expect(stderr).not.toMatch(/\u001b|\r|thinking/)
})

test('a skill that is wrong is told at a run, and keeps nothing from working', async () => {
  const folder = await folderWith({
    ...agentFiles('- text: One.\n'),
    'workspace/skills/bad/SKILL.md': 'no front matter\n',
  })
  expect(await reve(['run', 'hello'], folder)).toMatchObject({
    code: 0,
    stdout: 'One.\n',
    stderr: expect.stringMatching(/! left out: .*skills\/bad\/SKILL\.md:1/),
  })
})
