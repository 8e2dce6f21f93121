import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createSession, type JsonObject, labelDraft } from '@reve/session-log'
import { parse, type DefaultTreeAdapterMap } from 'parse5'
import { beforeAll, describe, expect, test } from 'vitest'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const hostile = '<script>alert(1)</script> & "quoted" \u001b]0;owned\u0007 \u202eevil ```\nsecond line'
const file = 'main-20260105T100000000Z-0a1b2c3d.jsonl'
let folder = ''

const entry = (id: string, parentId: string | null, message: JsonObject, lane = 'main') =>
  ({ kind: 'entry', lane, id, type: 'message', payload: { message }, parentId }) as const
const words = (text: string) => [{ type: 'text', text }]

beforeAll(async () => {
  folder = await folderWith(agentFiles('- text: One.\n'))
  await mkdir(join(folder, '.reve', 'sessions'), { recursive: true })
  await using log = await createSession(join(folder, '.reve', 'sessions', file), {
    cwd: 'workspace',
    id: 's_one',
    now: () => Date.parse('2026-01-05T10:00:00.000Z'),
  })
  await log.append([
    entry('e_1', null, {
      role: 'user',
      content: [...words(hostile), { type: 'image', mimeType: 'image/png', data: 'AAAA' }],
    }),
    entry('e_2', 'e_1', {
      role: 'assistant',
      model: 'a/b',
      content: [
        { type: 'reasoning', text: 'Hmm.' },
        { type: 'toolCall', id: 'c', name: 'bash<b>', arguments: { command: 'ls </pre>' } },
        { type: 'toolCall', id: 'd', name: 'read', malformed: '{"a":' },
      ],
      stopReason: 'toolUse',
    }),
    entry('e_3', 'e_2', {
      role: 'toolResult',
      toolCallId: 'c',
      toolName: 'bash',
      isError: true,
      content: words('line\n'.repeat(50)),
    }),
    entry('e_4', 'e_3', { role: 'assistant', model: 'a/b', content: words('The Answer.'), stopReason: 'stop' }),
    entry(
      'e_5',
      'e_1',
      { role: 'assistant', model: 'a/b', content: words('Another branch'), stopReason: 'stop' },
      'side',
    ),
    { kind: 'entry', lane: 'main', id: 'e_6', type: 'future_thing', parentId: 'e_4', payload: {} },
    labelDraft('e_4', 'good "one"'),
  ])
})

describe('reve sessions show', () => {
  test('gives the conversation of a lane, fit for a terminal, long pieces cut', async () => {
    const { code, stdout } = await reve(['sessions', 'show'], folder)
    expect(code).toBe(0)
    expect(stdout).not.toMatch(/[\u001b\u202e]/)
    expect(stdout).toContain('user · 2026-01-05T10:00:00.000Z · e_1\n  <script>alert(1)</script>')
    expect(stdout).toContain('▸ bash<b> {')
    expect(stdout).toContain('▸ read {"a":')
    expect(stdout).toMatch(/ {2}… 30 more lines\n/)
    expect(stdout).toContain('(future_thing)')
    expect(stdout).not.toContain('Another branch')
    expect((await reve(['sessions', 'show', 's_one', '--lane', 'side'], folder)).stdout).toContain('Another branch')
    const json = JSON.parse((await reve(['sessions', 'show', '--json'], folder)).stdout) as readonly {
      readonly id: string
    }[]
    expect(json.map(({ id }) => id)).toEqual(['e_1', 'e_2', 'e_3', 'e_4', 'e_6'])
    expect(await reve(['sessions', 'show', 's_one', '--lane', 'none'], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no lane "none"; it has main, side'),
    })
  })
})

describe('reve sessions search', () => {
  test('finds in all sessions and branches what was said, with its place', async () => {
    await writeFile(join(folder, '.reve', 'sessions', 'main-broken.jsonl'), '{"kind":"entry" the answer\n')
    const found = await reve(['sessions', 'search', 'the answer'], folder)
    expect(found).toMatchObject({ code: 0, stdout: `${file}  e_4  assistant: The Answer.\n` })
    expect((await reve(['sessions', 'search', 'The answer'], folder)).code).toBe(1)
    expect((await reve(['sessions', 'search', '--regex', 'an(o|a)ther'], folder)).stdout).toContain('e_5')
    expect((await reve(['sessions', 'search', '(o|a)'], folder)).code).toBe(1)
    const json = await reve(['sessions', 'search', '--json', 'ls </pre>'], folder)
    expect(JSON.parse(json.stdout)).toMatchObject({ id: 'e_2', who: 'assistant' })
    expect((await reve(['sessions', 'search', 'owned'], folder)).stdout).not.toMatch(/[\u001b\u202e]/)
    expect(await reve(['sessions', 'search', '--regex', '('], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no regular expression'),
    })
    expect((await reve(['sessions', 'search'], folder)).code).toBe(2)
  })
})

type Node = DefaultTreeAdapterMap['node']
const elements = (node: Node): readonly DefaultTreeAdapterMap['element'][] => [
  ...('tagName' in node ? [node] : []),
  ...('childNodes' in node ? node.childNodes.flatMap(elements) : []),
]

describe('reve sessions export', () => {
  test('as one page: all branches, nothing that runs or is loaded, what was said as text', async () => {
    const { code, stdout } = await reve(['sessions', 'export', 's_one', 'out.html'], folder)
    expect([code, stdout.trim()]).toEqual([0, join(folder, 'out.html')])
    const page = await readFile(join(folder, 'out.html'), 'utf8')
    const all = elements(parse(page))
    const tags = new Set(all.map(({ tagName }) => tagName))
    for (const tag of ['script', 'b', 'img', 'link', 'iframe', 'a']) expect(tags).not.toContain(tag)
    expect(page).toContain(`content="default-src 'none'; style-src 'unsafe-inline'"`)
    expect(page).not.toMatch(/https?:\/\/|\u001b|\u202e/)
    const articles = all.filter(({ tagName }) => tagName === 'article')
    expect(articles.map(({ attrs }) => attrs.find(({ name }) => name === 'id')?.value)).toEqual([
      'e_1',
      'e_2',
      'e_3',
      'e_4',
      'e_6',
      'e_5',
    ])
    expect(page).toContain('<mark>good &quot;one&quot;</mark>')
    expect(page).toContain('lane side goes on here')
    expect(page).toContain('failed, 51 lines')
  })

  test('as Markdown whose fences hold, and as JSON', async () => {
    const { stdout } = await reve(['sessions', 'export', 's_one'], folder)
    expect(stdout).toContain('## User')
    expect(stdout).toContain('**bash<b>**\n\n```json\n{\n  "command": "ls </pre>"\n}\n```')
    const json = JSON.parse((await reve(['sessions', 'export', 's_one', '--format=json'], folder)).stdout) as object
    expect(json).toMatchObject({ session: 's_one', entries: [{ id: 'e_1' }, { id: 'e_2' }, {}, {}, {}] })
  })

  test('never over a file that is there; what makes no sense is said', async () => {
    await writeFile(join(folder, 'mine.md'), 'mine')
    expect(await reve(['sessions', 'export', 's_one', 'mine.md'], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is there already'),
    })
    expect(await readFile(join(folder, 'mine.md'), 'utf8')).toBe('mine')
    expect((await reve(['sessions', 'export', 's_one', '--format', 'pdf'], folder)).stderr).toContain(
      'takes md, json, html',
    )
    expect((await reve(['sessions', 'export'], folder)).code).toBe(2)
    expect((await reve(['sessions', 'show', '--regex'], folder)).stderr).toContain(
      '--regex is an option of sessions search',
    )
  })
})
