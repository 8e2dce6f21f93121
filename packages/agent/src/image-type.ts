/** An image that a model can be shown, by what its bytes are. */
export type ImageType = { readonly mimeType: string; readonly width: number; readonly height: number }

/** Models' servers refuse longer sides. */
const longestSide = 8000

/**
 * What image a file is: by its contents, never by its name. `broken` says why it cannot be shown: one image that a model's
 * server does not take would make each later request fail. Undefined for what is no image.
 */
export function imageTypeOf(file: Uint8Array): ImageType | { readonly broken: string } | undefined {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength)
  const image = png(bytes) ?? jpeg(bytes) ?? gif(bytes) ?? webp(bytes)
  if (image === undefined || 'broken' in image) return image
  const { width, height } = image
  if (width === 0 || height === 0) return { broken: 'the image has no size' }
  if (Math.max(width, height) > longestSide) {
    return { broken: `the image has ${width}×${height} pixels; no side may be longer than ${longestSide}` }
  }
  return image
}

type Found = ImageType | { readonly broken: string } | undefined

const cutOff = (kind: string): Found => ({ broken: `it begins as a ${kind}, but its end is missing` })

function png(bytes: Buffer): Found {
  if (!bytes.subarray(0, 8).equals(Buffer.from('89504e470d0a1a0a', 'hex'))) return undefined
  if (bytes.length < 45 || bytes.toString('latin1', bytes.length - 8, bytes.length - 4) !== 'IEND') return cutOff('PNG')
  return { mimeType: 'image/png', width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) }
}

/** The frame header is the one segment SOF0 to SOF15 that is no table (C4, C8, CC). */
function jpeg(bytes: Buffer): Found {
  if (bytes.length < 4 || bytes.readUIntBE(0, 3) !== 0xffd8ff) return undefined
  let at = 2
  while (at + 9 <= bytes.length && bytes[at] === 0xff) {
    const marker = bytes[at + 1] ?? 0
    if (marker === 0xff) at++
    else if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      // What follows the end marker is other programs' business.
      if (!bytes.subarray(at).includes(Buffer.from('ffd9', 'hex'))) return cutOff('JPEG')
      return { mimeType: 'image/jpeg', width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) }
    } else at += 2 + bytes.readUInt16BE(at + 2)
  }
  return cutOff('JPEG')
}

function gif(bytes: Buffer): Found {
  if (!/^GIF8[79]a$/.test(bytes.toString('latin1', 0, 6)) || bytes.length < 14) return undefined
  if (bytes.at(-1) !== 0x3b) return cutOff('GIF')
  return { mimeType: 'image/gif', width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) }
}

function webp(bytes: Buffer): Found {
  if (bytes.length < 30 || !/^RIFF[^]{4}WEBPVP8[ LX]$/.test(bytes.toString('latin1', 0, 16))) return undefined
  if (bytes.readUInt32LE(4) + 8 > bytes.length) return cutOff('WebP')
  const mimeType = 'image/webp'
  switch (bytes[15]) {
    case 0x58:
      return { mimeType, width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 }
    case 0x4c: {
      const packed = bytes.readUInt32LE(21)
      return { mimeType, width: (packed & 0x3fff) + 1, height: ((packed >> 14) & 0x3fff) + 1 }
    }
    default:
      return { mimeType, width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff }
  }
}
