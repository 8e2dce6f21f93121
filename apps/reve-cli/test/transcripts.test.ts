import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createSession, type JsonObject, labelDraft } from '@reve/session-log'
import markdownIt from 'markdown-it'
import { parse, serialize, type DefaultTreeAdapterMap } from 'parse5'
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
    expect(stdout).toContain('e_4 · [good "one"]\n')
    expect(json[3]).toMatchObject({ label: 'good "one"' })
    expect(await reve(['sessions', 'show', 's_one', '--lane', 'none'], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no lane "none"; it has main, side'),
    })
  })
})

type Node = DefaultTreeAdapterMap['node']
const elements = (node: Node): readonly DefaultTreeAdapterMap['element'][] => [
  ...('tagName' in node ? [node] : []),
  ...('childNodes' in node ? node.childNodes.flatMap(elements) : []),
]

const attribute = ({ attrs }: DefaultTreeAdapterMap['element'], wanted: string): string | undefined =>
  attrs.find(({ name }) => name === wanted)?.value

/** Of a page: whatever would run, load or lead elsewhere. */
function active(page: string): readonly string[] {
  const all = elements(parse(page))
  const inert =
    'html head meta title style body h1 h2 p code nav ol li a mark article header strong pre details summary em'.split(
      ' ',
    )
  return [
    ...all.map(({ tagName }) => tagName).filter((tag) => !inert.includes(tag)),
    ...all
      .flatMap(({ attrs }) => attrs.map(({ name }) => name))
      .filter((name) => name.startsWith('on') || ['src', 'srcdoc', 'srcset'].includes(name)),
    ...all.map((element) => attribute(element, 'href') ?? '#').filter((href) => !href.startsWith('#')),
    ...(/url\(|@import|expression/i.exec(page) ?? []),
  ]
}

describe('reve sessions export', () => {
  test('as one page: all branches, nothing that runs or is loaded, what was said as text', async () => {
    const { code, stdout } = await reve(['sessions', 'export', 's_one', 'out.html'], folder)
    expect([code, stdout.trim()]).toEqual([0, join(folder, 'out.html')])
    const page = await readFile(join(folder, 'out.html'), 'utf8')
    const all = elements(parse(page))
    expect(active(page)).toEqual([])
    expect(page.indexOf('Content-Security-Policy')).toBeLessThan(page.indexOf('<title>'))
    expect(page).toContain(`content="default-src 'none';`)
    expect(page).not.toMatch(/https?:\/\/|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/)
    const articles = all.filter(({ tagName }) => tagName === 'article')
    expect(articles.map((article) => attribute(article, 'id'))).toEqual(['e_1', 'e_2', 'e_3', 'e_4', 'e_6', 'e_5'])
    // The tree: where it forks, where each branch ends, what leads from one to the other.
    expect(page).toContain('2 branches: <a href="#e_2">e_2</a> <a href="#e_5">e_5</a>')
    expect(page).toContain('branches off <a href="#e_1">e_1</a>')
    expect(articles.map((article) => attribute(article, 'style'))).toEqual([
      ...Array.from({ length: 5 }, () => '--branch:0'),
      '--branch:1',
    ])
    expect(page).toContain('<mark>good &quot;one&quot;</mark>')
    expect(page).toContain('lane side goes on here')
    expect(page).toContain('failed, 51 lines')
    const ids = new Set(all.map((element) => attribute(element, 'id')))
    for (const element of all.filter(({ tagName }) => tagName === 'a'))
      expect(ids).toContain(decodeURIComponent(attribute(element, 'href')?.slice(1) ?? ''))
  })

  test('as Markdown whose fences hold, and as JSON', async () => {
    const { stdout } = await reve(['sessions', 'export', 's_one'], folder)
    expect(stdout).toContain('## User')
    expect(stdout).toContain('## Assistant (good "one")')
    expect(stdout).toContain('**`bash<b>`**\n\n```json\n{\n  "command": "ls </pre>"\n}\n```')
    expect(stdout).toContain('&lt;script>alert(1)&lt;/script> & "quoted" ␛]0;owned␇ ⟨U+202E⟩evil')
    const json = JSON.parse((await reve(['sessions', 'export', 's_one', '--format=json'], folder)).stdout) as object
    expect(json).toMatchObject({
      session: 's_one',
      entries: [{ id: 'e_1' }, { id: 'e_2' }, {}, { label: 'good "one"' }, {}],
    })
  })

  test('whatever a session holds, its page holds it as text, and an entry takes so much room and no more', async () => {
    const wild = await createSession(join(folder, 'wild.jsonl'), { cwd: 'workspace', id: '"><script>x</script>' })
    const nasty =
      '</pre></title><!--<script>alert(1)</script><svg onload=x>\u0000\u001b[31m\ud800 javascript:x url(http://a) \u{e0041}'
    const mild = nasty.replaceAll(/[\u0000-\u001f\ud800]/g, '')
    await wild.append([
      entry('" onclick="x', null, { role: 'user', content: nasty }),
      entry('e_2', null, { role: nasty, content: words(nasty) }),
      entry('e_3', 'e_2', {
        role: 'assistant',
        model: nasty,
        content: [
          { type: nasty },
          { type: 'toolCall', name: nasty, arguments: { [nasty]: nasty } },
          { type: 'image', mimeType: nasty, data: 'x' },
        ],
      }),
      entry('e_4', 'e_3', { role: 'toolResult', toolName: nasty, content: words('&'.repeat(2_000_000)) }),
      entry('e_5', 'e_4', {
        role: 'assistant',
        content: Array.from({ length: 5000 }, () => ({ type: 'text', text: 'x' })),
      }),
      { kind: 'entry', lane: mild.slice(0, 10), id: 'e_6', type: mild, parentId: 'e_5', payload: {} },
      {
        kind: 'entry',
        lane: 'main',
        id: 'e_7',
        type: 'compaction',
        parentId: 'e_5',
        payload: { summary: nasty, firstKeptEntryId: 'e_5' },
      },
      labelDraft('e_3', mild),
    ])
    await wild.close()
    expect((await reve(['sessions', 'export', 'wild.jsonl', 'wild.html'], folder)).code).toBe(0)
    const page = await readFile(join(folder, 'wild.html'), 'utf8')
    expect(active(page).filter((found) => found !== 'url(')).toEqual([])
    expect(page).toContain('another beginning')
    expect(page).toContain('1900000 more characters are left out')
    expect(page).toContain('4500 more pieces are left out')
    const { childNodes } = elements(parse(page)).find(({ tagName }) => tagName === 'body') ?? { childNodes: [] }
    for (const node of childNodes)
      if ('tagName' in node && node.tagName === 'article') expect(serialize(node).length).toBeLessThan(1_000_000)
    expect((await reve(['sessions', 'export', 'wild.jsonl', 'wild.md'], folder)).code).toBe(0)
    const rendered = markdownIt('default', { html: true }).render(await readFile(join(folder, 'wild.md'), 'utf8'))
    expect(elements(parse(rendered)).map(({ tagName }) => tagName)).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/^(?:script|svg|a|img|title)$/)]),
    )
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
