import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { ImagePart, TextPart, UserMessage } from '@reve/providers/model'
import { imageType } from './pasted-paths.ts'

/** What providers take of one image. */
const mostBytes = 5_000_000

/**
 * A prompt with the images that were dropped on it, read from this machine: their paths were given by whoever typed.
 *
 * @throws Error naming the file that cannot be read, or is too large.
 */
export async function userMessage(
  text: string,
  images: readonly string[],
  home: string | undefined,
): Promise<string | UserMessage> {
  if (images.length === 0) return text
  const parts: (TextPart | ImagePart)[] = [{ type: 'text', text }]
  for (const path of images) {
    const file = path.startsWith('~/') && home !== undefined ? join(home, path.slice(2)) : path
    const { size } = await stat(file)
    if (size > mostBytes) throw new Error(`${file} has ${size} bytes; an image may have ${mostBytes}`)
    parts.push({
      type: 'image',
      mimeType: imageType(file) ?? 'image/png',
      data: (await readFile(file)).toString('base64'),
    })
  }
  return { role: 'user', content: parts }
}
