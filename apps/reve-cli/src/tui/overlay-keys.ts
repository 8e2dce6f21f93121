import { cleanLine } from './clean.ts'
import type { Input, Key } from './input-decoder.ts'
import type { Action, Step } from './keys.ts'
import { picked, viewerRoom } from './overlay-view.ts'
import { type Tree, treeJump, treeMoved, type TreeNode } from './tree.ts'
import type { Overlay, UiState } from './ui-state.ts'

const longestFilter = 200

/** What an input does to what is open in the prompt's place. */
export function overlayInput(state: UiState, overlay: Overlay, input: Input, height: number): Step {
  switch (overlay.type) {
    case 'picker':
      return pickerInput(state, overlay, input, height)
    case 'viewer':
      return viewerInput(state, overlay, input, height)
    case 'tree':
      return treeInput(state, overlay.tree, input, height)
    default:
      return overlay satisfies never
  }
}

const only = (state: UiState): Step => ({ state, actions: [] })
const closed = (state: UiState, ...actions: readonly Action[]): Step => ({
  state: { ...state, overlay: undefined },
  actions,
})

const typedText = (input: Input): string | undefined => {
  if (input.type === 'text') return input.text
  return input.type === 'paste' ? cleanLine(input.text, longestFilter) : undefined
}

/** How many rows a key goes: up is less than 0. */
function distance({ name, ctrl }: Key, page: number): number | undefined {
  switch (name) {
    case 'up':
      return -1
    case 'down':
      return 1
    case 'pageup':
      return -page
    case 'pagedown':
      return page
    case 'home':
      return Number.NEGATIVE_INFINITY
    case 'end':
      return Number.POSITIVE_INFINITY
    default:
      if (ctrl && name === 'p') return -1
      return ctrl && name === 'n' ? 1 : undefined
  }
}

function pickerInput(
  state: UiState,
  picker: Overlay & { readonly type: 'picker' },
  input: Input,
  height: number,
): Step {
  const items = picked(picker.items, picker.filter)
  const put = (next: Partial<typeof picker>): Step => only({ ...state, overlay: { ...picker, ...next } })
  const text = typedText(input)
  if (text !== undefined) return put({ filter: (picker.filter + text).slice(0, longestFilter), selected: 0 })
  if (input.type !== 'key') return only(state)
  const by = distance(input.key, Math.max(1, height - 4))
  if (by !== undefined) return put({ selected: Math.max(0, Math.min(items.length - 1, picker.selected + by)) })
  switch (input.key.name) {
    case 'escape':
      return closed(state)
    case 'backspace':
      return put({ filter: [...picker.filter].slice(0, -1).join(''), selected: 0 })
    case 'enter': {
      const item = items[picker.selected]
      return item === undefined
        ? only(state)
        : closed(state, { type: 'picked', purpose: picker.purpose, value: item.value })
    }
    case 'delete': {
      const item = items[picker.selected]
      if (picker.purpose.type !== 'queue' || item === undefined) return only(state)
      return closed(state, { type: 'take_back', entryId: item.value })
    }
    default:
      return only(state)
  }
}

function viewerInput(
  state: UiState,
  viewer: Overlay & { readonly type: 'viewer' },
  input: Input,
  height: number,
): Step {
  if (input.type === 'text' && input.text === 'q') return closed(state)
  if (input.type !== 'key') return only(state)
  const { from } = viewer
  const room = viewerRoom(height)
  const last = Math.max(0, viewer.rows.length - room)
  const by = distance(input.key, room)
  if (by !== undefined) {
    const now = viewer.follow ? last : Math.min(viewer.offset, last)
    const offset = Math.max(0, Math.min(last, now + by))
    return only({ ...state, overlay: { ...viewer, offset, follow: offset >= last && by > 0 } })
  }
  switch (input.key.name) {
    case 'escape':
    case 'enter':
      return closed(state)
    case 'left':
      return from.type === 'folded' ? { state, actions: [{ type: 'show_folded', back: from.back + 1 }] } : only(state)
    case 'right':
      return from.type === 'folded' && from.back > 0
        ? { state, actions: [{ type: 'show_folded', back: from.back - 1 }] }
        : only(state)
    case 'o':
      return input.key.ctrl ? closed(state) : only(state)
    default:
      return only(state)
  }
}

function treeInput(state: UiState, tree: Tree, input: Input, height: number): Step {
  const put = (next: Tree): Step => only({ ...state, overlay: { type: 'tree', tree: next } })
  const node = tree.nodes[tree.selected]
  if (tree.labelling !== undefined) return labelInput(state, tree, tree.labelling, input)
  if (input.type === 'text') {
    if (input.text === 'l' && node !== undefined) return put({ ...tree, labelling: node.label ?? '' })
    if (input.text === 't') return { state, actions: [{ type: 'tree_tools', tools: !tree.tools }] }
    return input.text === 'q' ? closed(state) : only(state)
  }
  if (input.type !== 'key') return only(state)
  const { key } = input
  if (key.shift && (key.name === 'up' || key.name === 'down')) return put(treeJump(tree, key.name === 'up' ? -1 : 1))
  const by = distance(key, Math.max(1, height - 9))
  if (by !== undefined) return put(treeMoved(tree, by))
  switch (key.name) {
    case 'escape':
      return closed(state)
    case 'enter':
      return node === undefined ? closed(state) : only({ ...state, overlay: goBack(node) })
    default:
      return only(state)
  }
}

/** What one said is said again, changed; from anything else the conversation goes on. */
function goBack(node: TreeNode): Overlay {
  const again = node.kind === 'user'
  const items = again
    ? [
        { value: 'talk', label: 'Say this again, changed', detail: 'the files stay as they are' },
        {
          value: 'files',
          label: 'Say this again, with the files of then',
          detail: 'workspace/ goes back too; what is there now is kept as a checkpoint',
        },
      ]
    : [
        { value: 'talk', label: 'Go on from here', detail: 'the files stay as they are' },
        {
          value: 'files',
          label: 'Go on from here, with the files of then',
          detail: 'workspace/ goes back too; what is there now is kept as a checkpoint',
        },
      ]
  return {
    type: 'picker',
    purpose: { type: 'go_back', entryId: again ? node.parentId : node.id, text: again ? node.whole : undefined },
    title: `${again ? 'You said' : 'Entry'}: ${node.text}`,
    items,
    filter: '',
    selected: 0,
  }
}

function labelInput(state: UiState, tree: Tree, label: string, input: Input): Step {
  const put = (labelling: string | undefined): Step =>
    only({ ...state, overlay: { type: 'tree', tree: { ...tree, labelling } } })
  const text = typedText(input)
  if (text !== undefined) return put((label + text).slice(0, longestFilter))
  if (input.type !== 'key') return only(state)
  switch (input.key.name) {
    case 'escape':
      return put(undefined)
    case 'backspace':
      return put([...label].slice(0, -1).join(''))
    case 'enter': {
      const node = tree.nodes[tree.selected]
      const shown = put(undefined).state
      return node === undefined
        ? only(shown)
        : { state: shown, actions: [{ type: 'label', entryId: node.id, label: label.trim() }] }
    }
    default:
      return only(state)
  }
}
