import type { EntryLine, SessionView } from '@reve/session-log'
import { code, fenced, prose, words } from './markdown-text.ts'
import { bounded, labelled, type Block } from './transcript.ts'

const TITLES = { user: 'User', assistant: 'Assistant', tool: 'Tool', summary: 'Summary', other: 'Note' } as const

/**
 * A conversation as Markdown that is safe to render: what was said keeps its form, but brings no HTML, link, image or turn of its own; what
 * tools took and gave stands in fences.
 */
export function toMarkdown(view: SessionView, path: readonly EntryLine[], title: string): string {
  const parts = [`# ${words(title)}`, `Session ${code(view.header.id)}, ${path.length} entries.`]
  for (const { id, who, ts, model, label, blocks } of labelled(view, path)) {
    if (who !== 'tool') {
      const about = [words(ts), ...(model === undefined ? [] : [words(model)]), code(id)].join(' · ')
      parts.push(`## ${TITLES[who]}${label === undefined ? '' : ` (${words(label)})`}`, about)
    }
    parts.push(...bounded(blocks).map(block))
  }
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

function block(given: Block): string {
  switch (given.kind) {
    case 'text':
    case 'summary':
      return prose(given.text)
    case 'note':
      return words(given.text)
    case 'reasoning':
      return prose(given.text).replaceAll(/^/gm, '> ')
    case 'call':
      return `**${code(given.name)}**\n\n${fenced(given.text, 'json')}`
    case 'result':
      return `${given.isError ? 'Failed:' : 'Result:'}\n\n${fenced(given.text, '')}`
    case 'image':
      return `(image, ${words(given.mimeType)}, ${given.characters} characters)`
    default:
      return given satisfies never
  }
}
