import type { EntryLine, SessionView } from '@reve/session-log'
import { said, type Block } from './transcript.ts'

const TITLES = { user: 'User', assistant: 'Assistant', tool: 'Tool', summary: 'Summary', other: 'Note' } as const

/** A conversation as Markdown. What was said stays as it was written; what tools took and gave stands in fences. */
export function toMarkdown(view: SessionView, path: readonly EntryLine[], title: string): string {
  const parts = [`# ${line(title)}`, `Session \`${line(view.header.id)}\`, ${path.length} entries.`]
  for (const entry of path) {
    const { who, ts, model, blocks } = said(entry)
    if (who !== 'tool')
      parts.push(`## ${TITLES[who]}`, `<sub>${line(ts)}${model === undefined ? '' : ` · ${line(model)}`}</sub>`)
    parts.push(...blocks.map(block))
  }
  return `${parts.join('\n\n')}\n`
}

function block(given: Block): string {
  switch (given.kind) {
    case 'text':
    case 'summary':
    case 'note':
      return given.text
    case 'reasoning':
      return quote(given.text)
    case 'call':
      return `**${line(given.name)}**\n\n${fence(given.text, 'json')}`
    case 'result':
      return `${given.isError ? '*Failed:*' : '*Result:*'}\n\n${fence(given.text, '')}`
    case 'image':
      return `*(image, ${line(given.mimeType)})*`
    default:
      return given satisfies never
  }
}

const line = (text: string): string => text.replaceAll(/[\r\n]+/g, ' ')
const quote = (text: string): string => text.replaceAll(/^/gm, '> ')

/** A fence longer than any that the text has. */
function fence(text: string, language: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length))
  const mark = '`'.repeat(longest + 1)
  return `${mark}${language}\n${text}\n${mark}`
}
