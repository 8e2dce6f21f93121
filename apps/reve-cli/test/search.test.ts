import { appendFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createSession, type JsonObject } from '@reve/session-log'
import { beforeAll, describe, expect, test } from 'vitest'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const [old, recent] = ['main-20260105T100000000Z-0a1b2c3d.jsonl', 'main-20260106T100000000Z-0a1b2c3d.jsonl']
let folder = ''

const search = (...args: readonly string[]) => reve(['sessions', 'search', ...args], folder)
const entry = (id: string, message: JsonObject, lane = 'main') =>
  ({ kind: 'entry', lane, id, type: 'message', payload: { message } }) as const
const words = (text: string) => [{ type: 'text', text }]

beforeAll(async () => {
  folder = await folderWith(agentFiles('- text: One.\n'))
  const sessions = join(folder, '.reve', 'sessions')
  await mkdir(sessions, { recursive: true })
  const at = (iso: string) => ({ cwd: 'workspace', now: () => Date.parse(iso) })
  await using first = await createSession(join(sessions, old), at('2026-01-05T10:00:00.000Z'))
  await first.append([
    entry('e_1', { role: 'user', content: words('one\nTwo needles: \u001b]0;owned\u0007 Needle (a+b)\nthree') }),
    entry('e_2', {
      role: 'assistant',
      content: [{ type: 'toolCall', id: 'c', name: 'bash', arguments: { command: 'find needle' } }],
      stopReason: 'toolUse',
    }),
    entry('e_3', {
      role: 'toolResult',
      toolCallId: 'c',
      toolName: 'bash',
      content: words(`${'x'.repeat(5000)}needle${'y'.repeat(5000)}`),
    }),
    entry('e_4', { role: 'user', content: words('on a branch: needle') }, 'side'),
    // A character at which other programs end a line.
    entry('e_5', { role: 'assistant', content: words('before\u2028after the separator') }),
    entry('e_6', { role: 'assistant', content: words(`${'a'.repeat(40)}!`) }),
  ])
  await using second = await createSession(join(sessions, recent), at('2026-01-06T10:00:00.000Z'))
  await second.append([entry('e_7', { role: 'user', content: words('a NEEDLE here') })])
  await appendFile(join(sessions, recent), '{"kind":"entry","needle')
  await writeFile(join(sessions, 'main-broken.jsonl'), '{"kind":"entry" needle\n')
})

describe('reve sessions search', () => {
  test('finds in all sessions and branches what was said, the last used first, with its entry and its line', async () => {
    const { code, stdout } = await search('needle')
    expect(code).toBe(0)
    expect(stdout.split('\n')).toEqual(
      [
        `${recent}  e_7  user:1: a NEEDLE here`,
        `${old}  e_1  user:2: Two needles:  Needle (a+b)`,
        `${old}  e_2  assistant:1: bash {`,
        '',
      ].toSpliced(
        2,
        1,
        expect.stringMatching(/ {2}e_2 {2}assistant:2: {3}"command": "find needle"$/),
        `${old}  e_3  tool:1: …${'x'.repeat(60)}needle${'y'.repeat(60)}…`,
        `${old}  e_4  user:1: on a branch: needle`,
      ),
    )
    expect(stdout).not.toContain('\u001b')
  })

  test('a large letter is meant; special characters are not, but in an expression', async () => {
    expect((await search('Needle')).stdout).toBe(`${old}  e_1  user:2: Two needles:  Needle (a+b)\n`)
    expect((await search('(a+b)')).stdout).toContain('e_1')
    expect((await search('--regex', 'need(le|s)s')).stdout).toContain('e_1  user:2')
    expect(await search('nowhere')).toMatchObject({ code: 1, stdout: '', stderr: 'nothing found in 3 sessions\n' })
  })

  test('sees an entry that has a line separator in it', async () => {
    expect((await search('after the separator')).stdout).toContain('e_5  assistant:1: ')
  })

  test('as JSON, a line each', async () => {
    const { stdout } = await search('--json', 'needle')
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as object),
    ).toMatchObject([
      {
        file: join(folder, '.reve', 'sessions', recent),
        id: 'e_7',
        who: 'user',
        line: 1,
        ts: '2026-01-06T10:00:00.000Z',
      },
      { id: 'e_1', line: 2, text: 'Two needles: \u001b]0;owned\u0007 Needle (a+b)' },
      { id: 'e_2', line: 2 },
      { id: 'e_3' },
      { id: 'e_4' },
    ])
  })

  test('an expression that is none, or that would never end, is said', async () => {
    expect(await search('--regex', '(')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no regular expression'),
    })
    expect(await search('--regex', '^(a+)+$')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('takes too long'),
    })
    expect((await search()).code).toBe(2)
  })
})
