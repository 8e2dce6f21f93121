import { describe, expect, test } from 'vitest'
import { type Editor, editorKey, emptyEditor, expand, insert, paste } from '../../src/tui/editor.ts'

const press = (editor: Editor, name: string, more: { ctrl?: true; alt?: true } = {}): Editor =>
  editorKey(editor, { name, ctrl: false, alt: false, shift: false, ...more }) ?? editor

describe('the prompt that is written', () => {
  test('a chip is deleted and undone as a whole, and what stands for it is never sent', () => {
    const long = 'a line\n'.repeat(20)
    const pasted = paste(insert(emptyEditor, 'see '), long)
    expect(expand(pasted).text).toBe(`see ${long}`)
    const deleted = press(pasted, 'backspace')
    expect(expand(deleted).text).toBe('see ')
    const undone = press(deleted, '_', { ctrl: true })
    expect(expand(undone).text).toBe(`see ${long}`)
    // A character of that plane in somebody's text stands for nothing.
    expect(expand(insert(emptyEditor, 'x\u{10f000}y')).text).toBe('x\ufffdy')
  })

  test('moves and deletes by what a person sees as one character, and by words', () => {
    const text = insert(emptyEditor, 'one two 👩‍👧‍👦é')
    expect(press(press(text, 'backspace'), 'backspace').text).toBe('one two ')
    expect(press(text, 'w', { ctrl: true }).text).toBe('one two ')
    let moved = text
    for (let at = 0; at < 3; at++) moved = press(moved, 'b', { alt: true })
    expect(moved.cursor).toBe(4)
    expect(press(press(text, 'a', { ctrl: true }), 'k', { ctrl: true }).text).toBe('')
    const cut = press(press(text, 'a', { ctrl: true }), 'k', { ctrl: true })
    expect(press(cut, 'y', { ctrl: true }).text).toBe(text.text)
  })

  test('Ctrl-U cuts a line, then its end, until nothing is left', () => {
    let editor = insert(emptyEditor, 'a\nb\nc')
    for (let at = 0; at < 5; at++) editor = press(editor, 'u', { ctrl: true })
    expect(editor.text).toBe('')
  })
})
