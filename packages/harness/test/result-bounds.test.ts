import type { ImagePart, TextPart } from '@reve/providers/model'
import { describe, expect, test } from 'vitest'
import { boundContent } from '../src/settle.ts'

const text = (value: string): TextPart => ({ type: 'text', text: value })
const image = (characters: number): ImagePart => ({
  type: 'image',
  mimeType: 'image/png',
  data: 'A'.repeat(characters),
})

describe('the bounds of a result', () => {
  test('what fits stays as it is', () => {
    const content = [text('a'.repeat(50)), image(100), text('b')]
    expect(boundContent(content, 200, 200)).toEqual(content)
  })

  test('a text that is too long keeps beginning and end', () => {
    expect(boundContent([text('a'.repeat(60) + 'b'.repeat(60))], 90)).toEqual([
      text(`${'a'.repeat(60)}\n[… 30 characters left out …]\n${'b'.repeat(30)}`),
    ])
  })

  test('very many small texts do not grow: one note counts those without room', () => {
    const bounded = boundContent(
      Array.from({ length: 200_000 }, () => text('ab')),
      100_000,
    )
    expect(JSON.stringify(bounded).length).toBeLessThan(200_000)
    const kept = bounded.length - 1
    expect(bounded.at(-1)).toEqual(
      text(`[… ${200_000 - kept} more parts left out: ${(200_000 - kept) * 2} characters …]`),
    )
    expect(bounded.slice(0, -1).every((part) => part.type === 'text' && part.text === 'ab')).toBe(true)
  })

  test('the note stands where the first text is missing, images after it stay', () => {
    expect(boundContent([text('a'.repeat(100)), text('b'), image(8), text('cc')], 100)).toEqual([
      text('a'.repeat(100)),
      text('[… 2 more parts left out: 3 characters …]'),
      image(8),
    ])
  })

  test('an image beyond the limit becomes a note, a smaller one after it stays', () => {
    expect(boundContent([image(60), image(50), image(5)], 1000, 100)).toEqual([
      image(60),
      text('[image image/png left out: 50 characters]'),
      image(5),
    ])
  })

  test('by itself a result takes 5 000 000 characters of images', () => {
    expect(boundContent([image(5_000_000)], 1000)).toEqual([image(5_000_000)])
    expect(boundContent([image(5_000_001)], 1000)).toEqual([text('[image image/png left out: 5000001 characters]')])
  })

  test('very many small images do not grow either', () => {
    const bounded = boundContent(
      Array.from({ length: 200_000 }, () => image(4)),
      10_000,
      10_000,
    )
    expect(JSON.stringify(bounded).length).toBeLessThan(100_000)
  })

  test('a type as long as an image is no type', () => {
    const odd = { ...image(4), mimeType: 'x'.repeat(1_000_000) }
    expect(JSON.stringify(boundContent([odd], 1000)).length).toBeLessThan(300)
  })
})
