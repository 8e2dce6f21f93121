import type { SessionView } from '@reve/session-log'
import { labels } from '@reve/session-log'
import { said, tree, type Block } from './transcript.ts'

/** More of one text than this is left out, and said so: a page has to open. */
const MOST_CHARACTERS = 200_000
/** What is longer is folded. */
const FOLDED_LINES = 12

const STYLE = `:root{color-scheme:light dark;--line:#8884;--dim:#888}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}article{border-left:3px solid var(--line);margin:.8rem 0 .8rem calc(var(--branch)*1.5rem);padding:.1rem .8rem}
article.user{border-color:#36c}article.assistant{border-color:#393}article.tool.failed{border-color:#c33}
header{color:var(--dim);font-size:.8rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0;font:13px/1.45 ui-monospace,monospace}
p.text{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0}details{margin:.3rem 0}summary{cursor:pointer;color:var(--dim)}
.reasoning{color:var(--dim);font-style:italic}mark{background:#fc03;color:inherit;padding:0 .3em;border-radius:.3em}
nav ol{columns:2;font-size:.85rem}a{color:inherit}`

/**
 * A whole session as one page: the tree of its branches, nothing loaded from anywhere, no script. Whatever was said is text on it: a
 * policy in the page's head forbids all else.
 */
export function toHtml(view: SessionView, title: string): string {
  const rows = tree(view)
  const named = labels(view)
  const leaves = new Set(view.lanes().map((lane) => view.leaf(lane)))
  const articles = rows.map(({ entry, branch, isLeaf }) => {
    const { id, ts, lane, who, model, blocks } = said(entry)
    const failed = blocks.some((block) => block.kind === 'result' && block.isError) ? ' failed' : ''
    const marks = [
      ...(named.get(id) === undefined ? [] : [`<mark>${text(named.get(id) ?? '')}</mark>`]),
      ...(leaves.has(id) ? [`<mark>lane ${text(lane)} goes on here</mark>`] : []),
      ...(isLeaf && !leaves.has(id) ? ['<mark>left</mark>'] : []),
    ]
    const about = [who, ts, model ?? '', id]
      .filter((part) => part !== '')
      .map(text)
      .join(' · ')
    return `<article class="${who}${failed}" id="${text(id)}" style="--branch:${Math.min(branch, 8)}"><header>${about} ${marks.join(' ')}</header>${blocks.map(block).join('')}</article>`
  })
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>${text(title)}</title><style>${STYLE}</style></head>
<body><h1>${text(title)}</h1><p>Session <code>${text(view.header.id)}</code>, ${rows.length} entries.</p>
${articles.join('\n')}
</body></html>
`
}

function block(given: Block): string {
  switch (given.kind) {
    case 'text':
    case 'note':
      return `<p class="text" dir="auto">${long(given.text)}</p>`
    case 'summary':
      return `<p class="text"><em>What was said before, summarised:</em>\n${long(given.text)}</p>`
    case 'reasoning':
      return folded('reasoning', `<p class="text reasoning">${long(given.text)}</p>`)
    case 'call':
      return `<strong>${text(given.name)}</strong>${maybeFolded(given.text, 'arguments')}`
    case 'result':
      return maybeFolded(given.text, given.isError ? 'failed' : 'result')
    case 'image':
      return `<p class="text">(image, ${text(given.mimeType)}, ${given.characters} characters)</p>`
    default:
      return given satisfies never
  }
}

function maybeFolded(given: string, what: string): string {
  const lines = given.split('\n').length
  const pre = `<pre>${long(given)}</pre>`
  return lines > FOLDED_LINES ? folded(`${what}, ${lines} lines`, pre) : pre
}

const folded = (summary: string, inner: string): string =>
  `<details><summary>${text(summary)}</summary>${inner}</details>`

function long(given: string): string {
  if (given.length <= MOST_CHARACTERS) return text(given)
  return `${text(given.slice(0, MOST_CHARACTERS))}\n(${given.length - MOST_CHARACTERS} more characters are left out)`
}

/** Fit for an element and for a quoted attribute. What turns the order of text around is shown, what a page cannot hold is replaced. */
const text = (given: string): string =>
  given
    .toWellFormed()
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\ufffe\uffff]/g, '\ufffd')
    .replaceAll(/[\u202a-\u202e\u2066-\u2069]/g, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase()}⟩`)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;')
