import type { JsonObject } from '@reve/providers/model'
import type { EntryLine, SessionView } from '@reve/session-log'
import { labels } from '@reve/session-log'
import * as v from 'valibot'
import { cleanLine } from './clean.ts'
import { toolSummary } from './tool-summary.ts'

/** One entry of the conversation tree, as a row. */
export type TreeNode = {
  readonly id: string
  readonly parentId: string | null
  readonly kind: 'user' | 'assistant' | 'tool' | 'summary' | 'other'
  /** One line, clean. */
  readonly text: string
  /** All of it, as it was written. */
  readonly whole: string
  readonly ts: string
  /** How many branches it is away from the trunk. */
  readonly depth: number
  /** On the way to where the conversation is. */
  readonly current: boolean
  readonly label: string | undefined
}

export type Tree = {
  readonly nodes: readonly TreeNode[]
  readonly leaf: string | null
  readonly selected: number
  /** Whether results of tools are listed too. */
  readonly tools: boolean
  /** The label that is being written. */
  readonly labelling: string | undefined
}

const part = v.object({
  type: v.string(),
  text: v.optional(v.string()),
  name: v.optional(v.string()),
  arguments: v.optional(v.custom<JsonObject>((value) => typeof value === 'object' && value !== null)),
})
const message = v.object({
  role: v.picklist(['user', 'assistant', 'toolResult']),
  content: v.array(part),
  toolName: v.optional(v.string()),
})

/** Reads the tree of a session. The trunk is the branch that the conversation is on; other branches stand below their beginning, indented. */
export function treeOf(view: SessionView, leaf: string | null, tools = false): Tree {
  const current = new Set(view.path(leaf).map(({ id }) => id))
  const named = labels(view)
  const nodes: TreeNode[] = []
  // Without recursion: a conversation is as deep as it is long.
  const open: { readonly entry: EntryLine; readonly depth: number }[] = []
  const push = (parentId: string | null, depth: number): void => {
    const children = view.children(parentId)
    const main = children.find(({ id }) => current.has(id)) ?? children.at(-1)
    // Taken from the end: branches first, then the trunk goes on.
    if (main !== undefined) open.push({ entry: main, depth })
    for (const entry of children.toReversed()) if (entry !== main) open.push({ entry, depth: depth + 1 })
  }
  push(null, 0)
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { entry, depth } = next
    const found = described(entry)
    const shown = found !== undefined && (tools || found.kind !== 'tool' || named.has(entry.id))
    if (shown) {
      nodes.push({
        ...found,
        id: entry.id,
        parentId: entry.parentId,
        ts: entry.ts,
        depth,
        current: current.has(entry.id),
        label: named.get(entry.id),
      })
    }
    push(entry.id, depth)
  }
  const at = nodes.findLastIndex((node) => node.current)
  return { nodes, leaf, selected: at < 0 ? Math.max(0, nodes.length - 1) : at, tools, labelling: undefined }
}

function described(entry: EntryLine): Pick<TreeNode, 'kind' | 'text' | 'whole'> | undefined {
  if (entry.type === 'compaction') {
    const summary = typeof entry['summary'] === 'string' ? entry['summary'] : ''
    return { kind: 'summary', text: cleanLine(`summary: ${summary}`, 300), whole: summary }
  }
  if (entry.type !== 'message') return undefined
  const read = v.safeParse(message, entry['message'])
  if (!read.success) return { kind: 'other', text: entry.type, whole: '' }
  const { role, content, toolName } = read.output
  const text = content
    .flatMap((piece) => (piece.type === 'text' && piece.text !== undefined ? [piece.text] : []))
    .join('\n')
  switch (role) {
    case 'user':
      return { kind: 'user', text: cleanLine(text, 300), whole: text }
    case 'toolResult':
      return { kind: 'tool', text: cleanLine(`${toolName ?? 'tool'}: ${text}`, 300), whole: text }
    case 'assistant': {
      const calls = content.flatMap((piece) =>
        piece.type === 'toolCall'
          ? [`${piece.name ?? ''} ${toolSummary(piece.name ?? '', piece.arguments ?? {})}`]
          : [],
      )
      const line = text.trim() === '' ? calls.join(', ') : text
      return {
        kind: 'assistant',
        text: cleanLine(line, 300),
        whole: [text, ...calls].filter((piece) => piece !== '').join('\n\n'),
      }
    }
    default:
      return role satisfies never
  }
}

/** Another node is highlighted; it stops at the ends. */
export const treeMoved = (tree: Tree, by: number): Tree => ({
  ...tree,
  selected: Math.max(0, Math.min(tree.nodes.length - 1, tree.selected + by)),
})

/** To the next node, up or down, that a person wrote, or that has a label. */
export function treeJump(tree: Tree, by: 1 | -1): Tree {
  for (let at = tree.selected + by; at >= 0 && at < tree.nodes.length; at += by) {
    const node = tree.nodes[at]
    if (node?.kind === 'user' || node?.label !== undefined) return { ...tree, selected: at }
  }
  return tree
}
