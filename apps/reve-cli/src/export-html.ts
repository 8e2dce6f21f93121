import { labels, type SessionView } from '@reve/session-log'
import { bounded, said, tree, type Block, type Node } from './transcript.ts'
import { visible } from './visible.ts'

/** What has more lines is folded: of tools, and of what was said. */
const FOLDED_LINES = 12
const FOLDED_TEXT_LINES = 120
/** Deeper branches are not drawn deeper. */
const DEEPEST = 8
/** Characters of what an entry says, in the list of branches. */
const SHOWN = 80

const STYLE = `:root{color-scheme:light dark;--line:#8884;--dim:#888}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1rem}article{border-left:3px solid var(--line);margin:.8rem 0 .8rem calc(var(--branch)*1.5rem);padding:.1rem .8rem}
article.user{border-color:#36c}article.assistant{border-color:#393}article.failed{border-color:#c33}article:target{background:#8882}
header{color:var(--dim);font-size:.8rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0;font:13px/1.45 ui-monospace,monospace}
p.text{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0}details{margin:.3rem 0}summary{cursor:pointer;color:var(--dim)}
.reasoning{color:var(--dim);font-style:italic}mark{background:#fc03;color:inherit;padding:0 .3em;border-radius:.3em}
nav ol{font-size:.85rem;max-height:20rem;overflow:auto}a{color:inherit}`

/**
 * A whole session as one page: the tree of its branches, nothing loaded from anywhere, no script. Whatever was said is text on it: a
 * policy in the page's head forbids all else.
 */
export function toHtml(view: SessionView, title: string): string {
  const nodes = tree(view)
  const named = labels(view)
  const lanes = new Map<string, string[]>()
  for (const lane of view.lanes()) {
    const leaf = view.leaf(lane)
    if (leaf !== null) lanes.set(leaf, [...(lanes.get(leaf) ?? []), lane])
  }
  const marksOf = ({ entry: { id }, branchesFrom, children }: Node): readonly string[] => {
    const label = named.get(id)
    const here = lanes.get(id) ?? []
    const isLeft = children.length === 0 && here.length === 0
    return [
      ...(label === undefined ? [] : [mark(text(label))]),
      ...here.map((lane) => mark(`lane ${text(lane)} goes on here`)),
      ...(isLeft ? [mark('left')] : []),
      ...(branchesFrom === undefined
        ? []
        : [mark(branchesFrom === null ? 'another beginning' : `branches off ${link(branchesFrom)}`)]),
      ...(children.length > 1
        ? [mark(`${children.length} branches: ${children.map((child) => link(child)).join(' ')}`)]
        : []),
    ]
  }
  const articles = nodes.map((node) => {
    const { id, ts, who, model, blocks } = said(node.entry)
    const failed = blocks.some((block) => block.kind === 'result' && block.isError) ? ' failed' : ''
    const about = [who, ts, model ?? '', id]
      .filter((part) => part !== '')
      .map(text)
      .join(' · ')
    return `<article class="${who}${failed}" id="${text(id)}" style="--branch:${Math.min(node.branch, DEEPEST)}"><header>${about} ${marksOf(node).join(' ')}</header>${bounded(blocks).map(block).join('')}</article>`
  })
  // What somebody looks for: where a conversation ends, forks, or was marked.
  const places = nodes.filter(({ entry: { id }, children }) => children.length !== 1 || named.has(id))
  const items = places.map((node) => {
    const { id, who, blocks } = said(node.entry)
    const [first] = blocks.flatMap((given) => ('text' in given ? [given.text.trim()] : []))
    const words = [...(first ?? '').slice(0, 2 * SHOWN).toWellFormed()].slice(0, SHOWN).join('')
    return `<li style="margin-left:${Math.min(node.branch, DEEPEST)}rem">${link(id, `${who}: ${words}`)} ${marksOf(node).join(' ')}</li>`
  })
  const nav = places.length > 1 ? `<nav><h2>Branches</h2><ol>${items.join('\n')}</ol></nav>\n` : ''
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>${text(title)}</title><style>${STYLE}</style></head>
<body><h1>${text(title)}</h1><p>Session <code>${text(view.header.id)}</code>, ${nodes.length} entries.</p>
${nav}${articles.join('\n')}
</body></html>
`
}

const mark = (inner: string): string => `<mark>${inner}</mark>`

/** To another entry of the page; there are no other links. */
const link = (id: string, about = id): string =>
  `<a href="#${text(encodeURIComponent(id.toWellFormed()))}">${text(about)}</a>`

function block(given: Block): string {
  switch (given.kind) {
    case 'text':
    case 'note':
      return maybeFolded(`<p class="text" dir="auto">${text(given.text)}</p>`, given.text, 'text', FOLDED_TEXT_LINES)
    case 'summary':
      return `<p class="text" dir="auto"><em>What was said before, summarised:</em>\n${text(given.text)}</p>`
    case 'reasoning':
      return folded('reasoning', `<p class="text reasoning" dir="auto">${text(given.text)}</p>`)
    case 'call':
      return `<strong>${text(given.name)}</strong>${maybeFolded(pre(given.text), given.text, 'arguments')}`
    case 'result':
      return maybeFolded(pre(given.text), given.text, given.isError ? 'failed' : 'result')
    case 'image':
      return `<p class="text">(image, ${text(given.mimeType)}, ${given.characters} characters)</p>`
    default:
      return given satisfies never
  }
}

const pre = (given: string): string => `<pre>\n${text(given)}</pre>`

function maybeFolded(html: string, given: string, what: string, most = FOLDED_LINES): string {
  const lines = given.split('\n').length
  return lines > most ? folded(`${what}, ${lines} lines`, html) : html
}

const folded = (summary: string, inner: string): string =>
  `<details><summary>${text(summary)}</summary>${inner}</details>`

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Fit for an element and for a quoted attribute. */
const text = (given: string): string => visible(given).replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? '')
