import { accepted, selected } from './completion.ts'
import { cleared, editorKey, expand, insert, paste, replaceRange, setText, withChip, type Editor } from './editor.ts'
import { movedRow } from './editor-layout.ts'
import type { Input, Key } from './input-decoder.ts'
import { overlayInput } from './overlay-keys.ts'
import { pastedImages } from './pasted-paths.ts'
import { isBusy, type PickPurpose, type UiState } from './ui-state.ts'

/** What a key asks of the world. */
export type Action =
  | {
      readonly type: 'send'
      readonly text: string
      readonly images: readonly string[]
      readonly how: 'enter' | 'follow_up'
    }
  | { readonly type: 'continue' }
  | { readonly type: 'interrupt' }
  | { readonly type: 'quit' }
  | { readonly type: 'suspend' }
  | { readonly type: 'edit_outside' }
  /** Without an id, the message that was queued last. */
  | { readonly type: 'take_back'; readonly entryId: string | undefined }
  | { readonly type: 'picked'; readonly purpose: PickPurpose; readonly value: string }
  | { readonly type: 'label'; readonly entryId: string; readonly label: string }
  | { readonly type: 'tree_tools'; readonly tools: boolean }
  | { readonly type: 'show_folded'; readonly back: number }
  | { readonly type: 'redraw' }

export type Step = { readonly state: UiState; readonly actions: readonly Action[] }

/** What an input does: a pure function. `width` is the prompt's room, `height` that of what is open in its place. */
export function handleInput(
  state: UiState,
  input: Input,
  size: { readonly width: number; readonly height: number },
): Step {
  const disarmed = { ...state, hint: undefined, quitArmed: false, escapeArmed: false }
  if (input.type === 'reply') return { state, actions: [] }
  if (input.type === 'key') {
    const everywhere = alwaysKey(state, input.key)
    if (everywhere !== undefined) return everywhere
  }
  if (state.overlay !== undefined) return overlayInput(disarmed, state.overlay, input, size.height)
  switch (input.type) {
    case 'text':
      return only({ ...disarmed, editor: insert(state.editor, input.text, 'typing') })
    case 'paste': {
      const images = pastedImages(input.text)
      const editor =
        images === undefined
          ? paste(state.editor, input.text)
          : images.reduce<Editor>((before, path) => withChip(before, { type: 'image', path }), state.editor)
      return only({ ...disarmed, editor })
    }
    case 'key':
      return promptKey(state, disarmed, input.key, size.width)
    default:
      return input satisfies never
  }
}

const only = (state: UiState): Step => ({ state, actions: [] })
const acts = (state: UiState, ...actions: readonly Action[]): Step => ({ state, actions })

/** Keys that mean the same wherever one is. */
function alwaysKey(state: UiState, key: Key): Step | undefined {
  if (!key.ctrl || key.alt) return undefined
  switch (key.name) {
    case 'c': {
      if (state.quitArmed) return acts(state, { type: 'quit' })
      const armed: UiState = { ...state, overlay: undefined, completion: undefined, hint: undefined, quitArmed: true }
      if (state.overlay !== undefined) return only(armed)
      if (isBusy(state)) return acts(armed, { type: 'interrupt' })
      return only({
        ...armed,
        editor: cleared(state.editor),
        history: { ...state.history, at: undefined, draft: undefined },
      })
    }
    case 'z':
      return acts(state, { type: 'suspend' })
    case 'l':
      return acts(state, { type: 'redraw' })
    default:
      return undefined
  }
}

function promptKey(state: UiState, disarmed: UiState, key: Key, width: number): Step {
  const { editor, completion } = state
  switch (key.name) {
    case 'escape':
      return escape(state, disarmed)
    case 'enter':
      if (key.alt) return send(disarmed, 'follow_up')
      if (key.shift || key.ctrl) break
      return enter(disarmed)
    case 'tab':
      return completion === undefined ? only(disarmed) : (accept(disarmed, 'tab') ?? only(disarmed))
    case 'up':
    case 'down': {
      const by = key.name === 'up' ? -1 : 1
      if (key.alt) return by < 0 ? acts(disarmed, { type: 'take_back', entryId: undefined }) : only(disarmed)
      if (completion !== undefined && completion.items.length > 0)
        return only({ ...disarmed, completion: selected(completion, by) })
      const moved = movedRow(editor, width, by)
      return only(moved === undefined ? recalled(disarmed, by) : { ...disarmed, editor: moved })
    }
    case 'pageup':
    case 'pagedown': {
      const by = key.name === 'pageup' ? -8 : 8
      return only(completion === undefined ? disarmed : { ...disarmed, completion: selected(completion, by) })
    }
    case 'p':
    case 'n':
      if (key.ctrl && !key.alt) return only(recalled(disarmed, key.name === 'p' ? -1 : 1))
      break
    case 'o':
      if (key.ctrl && !key.alt) return acts(disarmed, { type: 'show_folded', back: 0 })
      break
    case 'g':
      if (key.ctrl && !key.alt) return acts(disarmed, { type: 'edit_outside' })
      break
    case 'd':
      if (key.ctrl && !key.alt && editor.text === '') return acts(disarmed, { type: 'quit' })
      break
    default:
  }
  const edited = editorKey(editor, key)
  return only(edited === undefined ? disarmed : { ...disarmed, editor: edited })
}

function escape(state: UiState, disarmed: UiState): Step {
  const { editor, completion } = state
  if (completion !== undefined) {
    return only({ ...disarmed, completion: undefined, closedFor: editor.text })
  }
  if (state.escapeArmed && editor.text !== '')
    return only({ ...disarmed, editor: { ...setText(editor, ''), killed: editor.killed } })
  const armed: UiState = {
    ...disarmed,
    escapeArmed: true,
    hint: editor.text === '' ? undefined : 'Esc again clears what you wrote',
  }
  return isBusy(state) ? acts(armed, { type: 'interrupt' }) : only(armed)
}

function enter(state: UiState): Step {
  const done = state.completion === undefined ? undefined : accept(state, 'enter')
  if (done !== undefined) return done
  const { editor } = state
  // A backslash at the end is the new line of terminals that know no other.
  if (editor.cursor === editor.text.length && editor.text.endsWith('\\')) {
    const at = editor.text.length
    return only({ ...state, editor: replaceRange(editor, at - 1, at, '\n') })
  }
  return send(state, 'enter')
}

function send(state: UiState, how: 'enter' | 'follow_up'): Step {
  const { text, images } = expand(state.editor)
  if (text.trim() === '')
    return state.canContinue && text === '' ? acts({ ...state, canContinue: false }, { type: 'continue' }) : only(state)
  // What cannot be taken stays in the prompt.
  if (state.phase.type === 'refused' && !text.startsWith('/'))
    return only({ ...state, hint: 'the agent does not work here: see above; /quit leaves' })
  if (state.phase.type === 'reading' && !text.startsWith('/'))
    return only({ ...state, hint: 'read only: /new starts a session of your own' })
  const sent: UiState = { ...state, editor: cleared(state.editor), completion: undefined, closedFor: undefined }
  return acts(sent, { type: 'send', text, images, how })
}

function accept(state: UiState, how: 'tab' | 'enter'): Step | undefined {
  const { completion, editor } = state
  const change = completion === undefined ? undefined : accepted(completion, editor.text, how)
  if (change === undefined) return undefined
  return only({
    ...state,
    editor: replaceRange(editor, change.from, change.to, change.text),
    completion: undefined,
    closedFor: undefined,
  })
}

/** An earlier prompt, or a later one; what was being written comes back after the last. */
function recalled(state: UiState, by: -1 | 1): UiState {
  const { entries, at, draft } = state.history
  const next = (at ?? entries.length) + by
  if (next < 0 || (at === undefined && by > 0)) return state
  if (next >= entries.length) {
    return { ...state, editor: draft ?? cleared(state.editor), history: { entries, at: undefined, draft: undefined } }
  }
  const text = entries[next] ?? ''
  const empty = cleared(state.editor)
  const editor = text.length > 20_000 ? paste(empty, text) : setText(empty, text)
  return { ...state, editor, history: { entries, at: next, draft: at === undefined ? state.editor : draft } }
}
