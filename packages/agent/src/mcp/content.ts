import type { ToolOutput } from '@reve/harness'
import type { ImagePart, TextPart } from '@reve/providers/model'
import * as v from 'valibot'
import { imageTypeOf } from '../image-type.ts'
import { plainText } from './text.ts'

const Result = v.object({
  content: v.fallback(v.optional(v.array(v.unknown()), []), []),
  structuredContent: v.optional(v.unknown()),
  isError: v.fallback(v.optional(v.boolean(), false), false),
})

const Text = v.object({ type: v.literal('text'), text: v.string() })
const Media = v.object({ type: v.picklist(['image', 'audio']), data: v.string(), mimeType: v.string() })
const Link = v.object({
  type: v.literal('resource_link'),
  uri: v.string(),
  name: v.optional(v.string(), ''),
  description: v.optional(v.string(), ''),
})
const Embedded = v.object({
  type: v.literal('resource'),
  resource: v.object({
    uri: v.string(),
    mimeType: v.optional(v.string(), ''),
    text: v.optional(v.string()),
    blob: v.optional(v.string()),
  }),
})
const Part = v.variant('type', [Text, Media, Link, Embedded])

const mostParts = 500
const mostImages = 20
/** Characters of base64: what is larger, providers refuse. */
const imageCharacters = 5_000_000

/**
 * The result of a call as parts that a model can be given: texts, resources' texts under their URI, images that are what they say,
 * structured content when there is no text; a note for everything else.
 *
 * @param shorten keeps a long text's beginning and end, and the whole of it elsewhere.
 */
export async function toolOutput(result: unknown, shorten: (text: string) => Promise<string>): Promise<ToolOutput> {
  const { content, structuredContent, isError } = v.parse(Result, result)
  const parts: (TextPart | ImagePart)[] = []
  let texts: string[] = []
  let images = 0
  const flush = async (): Promise<void> => {
    if (texts.length > 0) parts.push({ type: 'text', text: await shorten(texts.join('\n')) })
    texts = []
  }
  for (const item of content.slice(0, mostParts)) {
    const part = partOf(item)
    if (typeof part === 'string') texts.push(part)
    else if (images >= mostImages) texts.push(`[one more image; only ${mostImages} are shown]`)
    else {
      images += 1
      await flush()
      parts.push(part)
    }
  }
  if (content.length > mostParts) texts.push(`[${content.length - mostParts} more parts are left out]`)
  if (texts.length === 0 && parts.length === 0)
    texts.push(structuredContent === undefined ? '(no content)' : JSON.stringify(structuredContent, null, 2))
  await flush()
  return { content: parts, isError }
}

function partOf(item: unknown): string | ImagePart {
  const read = v.safeParse(Part, item)
  if (!read.success) return '[a part of a kind that is not known here]'
  const part = read.output
  switch (part.type) {
    case 'text':
      return part.text
    case 'image':
      return imageOf(part.data, part.mimeType)
    case 'audio':
      return `[audio, ${plainText(part.mimeType, 60)}, ${bytesOf(part.data)} bytes: cannot be shown]`
    case 'resource_link': {
      const about = [part.name, part.description].map((text) => plainText(text, 500)).filter((text) => text !== '')
      return `[resource ${plainText(part.uri, 500)}${about.length === 0 ? '' : `: ${about.join(', ')}`}]`
    }
    case 'resource': {
      const { uri, mimeType, text, blob } = part.resource
      const head = `[resource ${plainText(uri, 500)}${mimeType === '' ? '' : `, ${plainText(mimeType, 60)}`}]`
      if (text !== undefined) return `${head}\n${text}`
      if (blob === undefined) return head
      if (mimeType.startsWith('image/')) return imageOf(blob, mimeType)
      return `${head} ${bytesOf(blob)} bytes, not text: not shown`
    }
    default:
      return part satisfies never
  }
}

/** By what its bytes are: an image that a provider refuses would make each later request fail. */
function imageOf(data: string, mimeType: string): string | ImagePart {
  const note = (why: string): string => `[image, ${plainText(mimeType, 60)}, ${bytesOf(data)} bytes: ${why}]`
  if (data.length > imageCharacters) return note('too large to be shown')
  const bytes = Buffer.from(data, 'base64')
  const image = imageTypeOf(bytes)
  if (image === undefined) return note('of a kind that cannot be shown')
  if ('broken' in image) return note(image.broken)
  return { type: 'image', mimeType: image.mimeType, data: bytes.toString('base64') }
}

const bytesOf = (base64: string): number => Math.floor((base64.length * 3) / 4)
