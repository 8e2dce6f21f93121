import { expect, test } from 'vitest'
import { toolOutput } from '../../src/mcp/content.ts'

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const output = (result: unknown) => toolOutput(result, async (text) => `<${text}>`)

test('parts become what a model can be given', async () => {
  const { content, isError } = await output({
    content: [
      { type: 'text', text: 'a' },
      { type: 'resource', resource: { uri: 'file:///a', mimeType: 'text/plain', text: 'b' } },
      { type: 'image', mimeType: 'image/jpeg', data: png },
      { type: 'resource', resource: { uri: 'file:///i', mimeType: 'image/png', blob: png } },
      { type: 'image', mimeType: 'image/png', data: 'bm8=' },
      { type: 'audio', mimeType: 'audio/wav', data: 'bm8=' },
      { type: 'resource', resource: { uri: 'file:///z', blob: 'bm8=' } },
      { type: 'resource_link', uri: 'file:///l', name: 'l', description: 'a \u001b]0;link' },
      { type: 'hologram' },
    ],
    structuredContent: { a: 1 },
    isError: true,
  })
  const image = { type: 'image', mimeType: 'image/png', data: png }
  expect(isError).toBe(true)
  expect(content).toEqual([
    { type: 'text', text: '<a\n[resource file:///a, text/plain]\nb>' },
    image,
    image,
    {
      type: 'text',
      text: '<[image, image/png, 3 bytes: of a kind that cannot be shown]\n[audio, audio/wav, 3 bytes: cannot be shown]\n[resource file:///z] 3 bytes, not text: not shown\n[resource file:///l: l, a]\n[a part of a kind that is not known here]>',
    },
  ])
})

test('structured content is shown when there is nothing else; nothing is said to be nothing', async () => {
  expect((await output({ content: [], structuredContent: { a: [1] } })).content).toEqual([
    { type: 'text', text: '<{\n  "a": [\n    1\n  ]\n}>' },
  ])
  expect(await output({})).toEqual({ content: [{ type: 'text', text: '<(no content)>' }], isError: false })
})

test('the number of parts and images is bounded', async () => {
  const { content } = await output({
    content: [
      ...Array.from({ length: 30 }, () => ({ type: 'image', mimeType: 'image/png', data: png })),
      ...Array.from({ length: 600 }, () => ({ type: 'text', text: 'x' })),
    ],
  })
  expect(content.length).toBe(21)
  expect(content.at(-1)).toMatchObject({ text: expect.stringContaining('[130 more parts are left out]') })
  expect(content.at(-1)).toMatchObject({ text: expect.stringContaining('only 20 are shown') })
  const large = { type: 'image', mimeType: 'image/png', data: 'A'.repeat(5_000_001) }
  expect((await output({ content: [large] })).content).toEqual([
    { type: 'text', text: expect.stringContaining('too large') },
  ])
})
