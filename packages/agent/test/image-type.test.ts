import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { imageTypeOf } from '../src/image-type.ts'

const base64 = (text: string): Buffer => Buffer.from(text, 'base64')
/** Small ones, as programs write them. */
const images = {
  png: base64('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=='),
  gif: base64('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'),
  webp: base64('UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAgA0JaQAA3AA/vuUAAA='),
  webpLossless: base64('UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=='),
  jpeg: Buffer.concat([
    Buffer.from('ffd8ffe000104a46494600010100000100010000', 'hex'),
    Buffer.from('ffdb0004ff00ffc0000b080002000301011100ffda0008010100003f00', 'hex'),
    Buffer.from('ffd9', 'hex'),
  ]),
}

describe('an image is known by its bytes', () => {
  test.each([
    ['png', 'image/png', 1, 1],
    ['gif', 'image/gif', 1, 1],
    ['webp', 'image/webp', 1, 1],
    ['webpLossless', 'image/webp', 1, 1],
    ['jpeg', 'image/jpeg', 3, 2],
  ] as const)('%s', (name, mimeType, width, height) => {
    expect(imageTypeOf(images[name])).toEqual({ mimeType, width, height })
  })

  test('one without its end, without a size, or too large a one is told', () => {
    for (const [name, bytes] of Object.entries(images)) {
      expect([name, imageTypeOf(bytes.subarray(0, -2))]).toEqual([
        name,
        { broken: expect.stringContaining('its end is missing') },
      ])
    }
    const png = Buffer.from(images.png)
    png.writeUInt32BE(0, 16)
    expect(imageTypeOf(png)).toEqual({ broken: 'the image has no size' })
    png.writeUInt32BE(9000, 16)
    expect(imageTypeOf(png)).toEqual({ broken: 'the image has 9000×1 pixels; no side may be longer than 8000' })
  })

  test('other bytes are none, and none makes it fail', () => {
    for (const text of ['', 'GIF', 'GIF90a and so on and on', 'RIFF1234WAVEfmt and so on and so on', '%PDF-1.7'])
      expect(imageTypeOf(Buffer.from(text))).toBeUndefined()
    const beginning = fc.constantFrom(...Object.values(images))
    fc.assert(
      fc.property(beginning, fc.nat(60), fc.uint8Array({ maxLength: 60 }), (image, kept, rest) => {
        const found = imageTypeOf(Buffer.concat([image.subarray(0, kept), rest]))
        expect(found === undefined || 'broken' in found || found.width > 0).toBe(true)
      }),
      { numRuns: 2000 },
    )
  })
})
