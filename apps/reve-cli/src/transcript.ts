import type { EntryLine, SessionView } from '@reve/session-log'
import * as v from 'valibot'

/** A piece of a conversation as a reader sees it. Text is as it was written: nothing of it is fit for a terminal or a page yet. */
export type Block =
  | { readonly kind: 'text' | 'reasoning' | 'summary' | 'note'; readonly text: string }
  | { readonly kind: 'call'; readonly name: string; readonly text: string }
  | { readonly kind: 'result'; readonly name: string; readonly text: string; readonly isError: boolean }
  | { readonly kind: 'image'; readonly mimeType: string; readonly characters: number }

/** One entry of the tree, with who said it. */
export type Said = {
  readonly id: string
  readonly ts: string
  readonly lane: string
  readonly who: 'user' | 'assistant' | 'tool' | 'summary' | 'other'
  /** Of the model that answered. */
  readonly model?: string
  readonly blocks: readonly Block[]
}

const Part = v.looseObject({ type: v.string() })
const Message = v.looseObject({
  role: v.string(),
  content: v.array(Part),
  model: v.optional(v.string()),
  toolName: v.optional(v.string()),
  isError: v.optional(v.boolean()),
})

/** What an entry says. A type that this version does not know is shown by its name. */
export function said(entry: EntryLine): Said {
  const { id, ts, lane } = entry
  const message = v.safeParse(Message, entry['message'])
  if (entry.type === 'message' && message.success) {
    const { role, content, model, toolName, isError } = message.output
    const who = role === 'user' || role === 'assistant' ? role : role === 'toolResult' ? 'tool' : 'other'
    const blocks = content.map((part): Block => {
      const block = blockOf(part)
      if (who !== 'tool' || block.kind !== 'text') return block
      return { kind: 'result', name: toolName ?? '', text: block.text, isError: isError ?? false }
    })
    return { id, ts, lane, who, ...(model === undefined ? {} : { model }), blocks }
  }
  if (entry.type === 'compaction')
    return { id, ts, lane, who: 'summary', blocks: [{ kind: 'summary', text: textOf(entry['summary']) }] }
  const about = entry.type === 'custom' ? textOf(entry['customType']) : entry.type
  return { id, ts, lane, who: 'other', blocks: [{ kind: 'note', text: `(${about})` }] }
}

function blockOf(part: v.InferOutput<typeof Part>): Block {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return { kind: part.type, text: textOf(part['text']) }
    case 'toolCall': {
      const raw = part['malformed']
      const text = typeof raw === 'string' ? raw : JSON.stringify(part['arguments'] ?? {}, null, 2)
      return { kind: 'call', name: textOf(part['name']), text }
    }
    case 'image':
      return { kind: 'image', mimeType: textOf(part['mimeType']), characters: textOf(part['data']).length }
    default:
      return { kind: 'note', text: `(${part.type})` }
  }
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

/** All that a search looks through in an entry. */
export const searchable = ({ blocks }: Said): string =>
  blocks
    .map((block) => (block.kind === 'image' ? '' : block.kind === 'call' ? `${block.name} ${block.text}` : block.text))
    .join('\n')

/** The tree from its roots on, children in the order of the file, each with how deep its branch lies. */
export function tree(
  view: SessionView,
): readonly { readonly entry: EntryLine; readonly branch: number; readonly isLeaf: boolean }[] {
  const rows: { readonly entry: EntryLine; readonly branch: number; readonly isLeaf: boolean }[] = []
  // A stack of our own: a conversation may be deeper than a program's.
  const stack = view
    .children(null)
    .map((entry) => ({ entry, branch: 0 }))
    .toReversed()
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { entry, branch } = next
    const children = view.children(entry.id)
    rows.push({ entry, branch, isLeaf: children.length === 0 })
    // What goes on in a straight line stays where it is; only what branches off lies deeper.
    const deeper = children.length > 1 ? branch + 1 : branch
    stack.push(
      ...children.map((child, index) => ({ entry: child, branch: index === 0 ? branch : deeper })).toReversed(),
    )
  }
  return rows
}
