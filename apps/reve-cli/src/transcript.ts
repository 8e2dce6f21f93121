import { type EntryLine, labels, type SessionView } from '@reve/session-log'
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
  content: v.union([v.array(Part), v.string()]),
  model: v.optional(v.string()),
  toolName: v.optional(v.string()),
  isError: v.optional(v.boolean()),
})

/** So much of an entry as a reader needs. */
type Entry = {
  readonly id: string
  readonly ts: string
  readonly lane: string
  readonly type: string
  readonly [key: string]: unknown
}

/** What an entry says. A type that this version does not know is shown by its name. */
export function said(entry: Entry): Said {
  const { id, ts, lane } = entry
  const message = v.safeParse(Message, entry['message'])
  if (entry.type === 'message' && message.success) {
    const { role, content, model, toolName, isError } = message.output
    const who = role === 'user' || role === 'assistant' ? role : role === 'toolResult' ? 'tool' : 'other'
    const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : content
    const blocks = parts.map((part): Block => {
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

/** Entries as a reader sees them, with the labels that they were given. */
export function labelled(
  view: SessionView,
  entries: readonly EntryLine[],
): readonly (Said & { readonly label?: string })[] {
  const named = labels(view)
  return entries.map((entry) => {
    const label = named.get(entry.id)
    return { ...said(entry), ...(label === undefined ? {} : { label }) }
  })
}

/** More of one entry is left out of a page, and said so: a page has to open. */
export const MOST_CHARACTERS = 100_000
const MOST_BLOCKS = 500

/** The blocks of an entry, so much of them as a page takes. */
export function bounded(blocks: readonly Block[]): readonly Block[] {
  let left = MOST_CHARACTERS
  let without = 0
  const kept = blocks.slice(0, MOST_BLOCKS).flatMap((block): readonly Block[] => {
    if (block.kind === 'image') return [block]
    const text = block.text.slice(0, left)
    left -= text.length
    without += block.text.length - text.length
    return text === '' && block.text !== '' ? [] : [{ ...block, text }]
  })
  if (without > 0) kept.push({ kind: 'note', text: `(${without} more characters are left out)` })
  if (blocks.length > MOST_BLOCKS)
    kept.push({ kind: 'note', text: `(${blocks.length - MOST_BLOCKS} more pieces are left out)` })
  return kept
}

/** All that a search looks through in an entry. */
export const searchable = ({ blocks }: Said): string =>
  blocks
    .map((block) => (block.kind === 'image' ? '' : block.kind === 'call' ? `${block.name} ${block.text}` : block.text))
    .join('\n')

/** An entry in the tree of a session. */
export type Node = {
  readonly entry: EntryLine
  /** How deep its branch lies. */
  readonly branch: number
  /** The entry that it is another answer to; for the first of each branch but the oldest. */
  readonly branchesFrom?: string | null
  readonly children: readonly string[]
}

/** The tree from its roots on, each branch after the one that is older. */
export function tree(view: SessionView): readonly Node[] {
  const nodes: Node[] = []
  type Next = Omit<Node, 'children'>
  const nextOf = (parent: string | null, branch: number): readonly Next[] =>
    view
      .children(parent)
      // What goes on in a straight line stays where it is; only what branches off lies deeper.
      .map((entry, index) => (index === 0 ? { entry, branch } : { entry, branch: branch + 1, branchesFrom: parent }))
      .toReversed()
  // A stack of our own: a conversation may be deeper than a program's.
  const stack = [...nextOf(null, 0)]
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const below = nextOf(next.entry.id, next.branch)
    nodes.push({ ...next, children: below.map(({ entry }) => entry.id).toReversed() })
    stack.push(...below)
  }
  return nodes
}
