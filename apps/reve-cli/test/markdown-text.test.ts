import fc from 'fast-check'
import markdownIt from 'markdown-it'
import { marked } from 'marked'
import { parse, type DefaultTreeAdapterMap } from 'parse5'
import { describe, expect, test } from 'vitest'
import { code, fenced, prose, words } from '../src/markdown-text.ts'

type Node = DefaultTreeAdapterMap['node']
type Element = DefaultTreeAdapterMap['element']
const below = (node: Node): readonly Node[] => ('childNodes' in node ? node.childNodes : [])
const elements = (node: Node): readonly Element[] => [
  ...('tagName' in node ? [node] : []),
  ...below(node).flatMap(elements),
]
const textOf = (node: Node): string => ('value' in node ? node.value : below(node).map(textOf).join(''))

const commonmark = markdownIt('commonmark', { html: true })
const github = markdownIt('default', { html: true })
/** Renderers that take HTML as it comes: what they do is what the worst reader's does. */
const renderers = {
  'markdown-it, CommonMark': (text: string) => commonmark.render(text),
  'markdown-it, with tables': (text: string) => github.render(text),
  marked: (text: string) => marked.parse(text, { async: false }),
} as const

const harmless = new Set(
  'html head body h1 h2 h3 h4 h5 h6 p em strong s del code pre ul ol li blockquote hr br table thead tbody tr th td'.split(
    ' ',
  ),
)

/** Rendered between two turns of a page, with what is wrong. */
function judged(said: string, render: (text: string) => string): readonly string[] {
  const page = `# Title\n\n## User\n\n${prose(said)}\n\n## Assistant\n\n${prose(said)}\n\n## User\n\nEND\n`
  const document = parse(render(page))
  const all = elements(document)
  const body = all.find(({ tagName }) => tagName === 'body')
  const turns = body?.childNodes.filter((node): node is Element => 'tagName' in node && /^h[12]$/.test(node.tagName))
  const links = all
    .filter(({ tagName }) => tagName === 'a')
    .map(({ attrs }) => attrs.find(({ name }) => name === 'href')?.value ?? '')
  return [
    ...all
      .map(({ tagName }) => tagName)
      .filter((tag) => !harmless.has(tag) && tag !== 'a')
      // What marked makes of "- [ ]".
      .filter(
        (tag) =>
          !(
            tag === 'input' &&
            all.every((el) => el.tagName !== 'input' || el.attrs.some(({ value }) => value === 'checkbox'))
          ),
      ),
    // A bare address is one in some dialects.
    ...links.filter((href) => !/^(?:https?|ftp|mailto):/i.test(href)),
    ...(turns?.map(textOf).join() === 'Title,User,Assistant,User' ? [] : [`turns: ${turns?.map(textOf).join()}`]),
    ...(textOf(document).trimEnd().endsWith('END') ? [] : ['no end']),
  ]
}

describe.each(Object.entries(renderers))('rendered by %s', (_, render) => {
  test.each([
    '<script>alert(1)</script>',
    '<img src=x onerror=alert(1)>',
    '<!-- never closed',
    '<a href="javascript:alert(1)">x</a> <http://a.example>',
    '[x](javascript:alert(1)) ![y](http://a.example/t.png) \\](z) [r][r]\n\n[r]: javascript:alert(1) "t"',
    '```\n<b>never closed',
    '- ```js\n  <b>\n  ```\n<i>out</i>',
    '- ```js\n<b>\n  ```\n<i>out</i>\n```\n<u>',
    '> ```\n<b>\n> ```\n<i>',
    '1. ~~~\n```\n<b>\n~~~\n<i>',
    '`\n`<b>`',
    'a ` b\n\n`<b>`',
    '| a ` | <b> ` |\n|---|---|\n| ` | <i> ` |',
    '\\`<b>` `` ` <i> ` ``',
    '\\\\`<b>`',
    '    <b>',
    'User\n----',
    'Title\n  ===',
    '## User\n# Title\n####### x',
    '## Assistant ##\r## User\rno',
    '`a`\u2028# User',
    '&lt;b&gt; &#60;b>',
    '<<b>>',
    'http://a.b`<b>` `<i>`',
    '[^1]: <b>\n[^1]',
    '$$\n<b>\n$$',
    '---\ntitle: x\n---',
    'a\n- \n  ---\n\t# User',
  ])('%j brings nothing in', (said) => {
    expect(judged(said, render)).toEqual([])
  })

  test('whatever is said', () => {
    const piece = fc.constantFrom(
      ...'` `` ``` ```` ~~~ ~ < <b> </b> <b <script> <!-- --> <? <![CDATA[ ]]> <a:b> > >> - * + 1. 1) | || \\ \\\\ [ ] ]( ) ]: ][ ! ![ # ## === --- ___ *** & &lt; &#96; javascript:x http://a.b www.a.b a@b.c mailto:a@b.c a b " \' $ $$ : ^ [^1]'.split(
        ' ',
      ),
      ...['\n', '\n', '\n', '\n\n', '\r', '\t', ' ', ' ', '  ', '    ', '\u2028', '\f', '\u00a0'],
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 24 }), (pieces) => {
        expect(judged(pieces.join(''), render)).toEqual([])
      }),
      { numRuns: 4000 },
    )
  })
})

describe('what was written stays', () => {
  test('emphasis, lists, tables, code in its language, and what looks like HTML in code', () => {
    const said =
      '# Plan\n\n**Two** `Vec<T>` things:\n\n- one\n\n```ts\nconst a: Array<b> = []\n```\n\n| a | `<b>` |\n|---|---|\n| 1 | 2 |\n\n> quoted'
    const rendered = github.render(prose(said))
    expect(rendered).toContain('<h3>Plan</h3>')
    expect(rendered).toContain('<strong>Two</strong> <code>Vec&lt;T&gt;</code>')
    expect(rendered).toContain('<li>one</li>')
    expect(rendered).toContain('<pre><code class="language-ts">const a: Array&lt;b&gt; = []\n</code></pre>')
    expect(rendered).toContain('<th><code>&lt;b&gt;</code></th>')
    expect(rendered).toContain('<blockquote>')
  })

  test('links as the text that they are written as', () => {
    expect(textOf(parse(commonmark.render(prose('see [the page](https://a.example/x?a=1)'))))).toBe(
      'see [the page](https://a.example/x?a=1)\n',
    )
  })

  test('code of a list, with its indentation', () => {
    expect(prose('- do:\n  ```sh\n  if x\n    y\n  ```\n  then')).toBe('- do:\n\n```sh\nif x\n  y\n```\n\n  then')
  })
})

test('takes time that grows with the text and no faster', () => {
  // Each of these would take minutes if it grew with the square.
  for (const part of ['`a', '\n', '```\n', '<', '| ` |', 'http://a.b`', '` `` ``` ', '&#96;', '> > > '])
    expect(prose(`${part.repeat(200_000)}x`).length).toBeGreaterThan(0)
})

test('a fence, a name and a heading hold whatever they have in them', () => {
  const anything = fc.string({
    unit: fc.constantFrom('`', '```', '~', '\n', '\r', ' ', '<b>', '|', '*', '#', '](', '\\', 'a', '\u2028'),
  })
  fc.assert(
    fc.property(anything, (given) => {
      const all = elements(
        parse(commonmark.render(`${fenced(given, given)}\n\n**${code(given)}**\n\n## a ${words(given)} b\n\nEND`)),
      )
      expect(all.filter(({ tagName }) => ['b', 'a', 'img'].includes(tagName))).toEqual([])
      expect(all.filter(({ tagName }) => tagName === 'pre')).toHaveLength(1)
      expect(all.filter(({ tagName }) => tagName === 'h2')).toHaveLength(1)
    }),
    { numRuns: 2000 },
  )
})
