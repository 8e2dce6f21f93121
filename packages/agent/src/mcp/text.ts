import { sanitiseTerminal } from '@reve/base'

/** Characters that show nothing, in which a text can carry words for a model that no person sees. */
const hidden =
  /[\u00AD\u180E\u200B\u2060-\u2064\u206A-\u206F\uFEFF\uFFF9-\uFFFB]|[\u{E0000}-\u{E007F}]|[\u{E0100}-\u{E01EF}]/gu

/** A server's words about itself: without what is not seen, and at most `most` characters. */
export function plainText(text: string, most: number): string {
  const characters = [
    ...sanitiseTerminal(text.slice(0, most * 8))
      .replaceAll(hidden, '')
      .trim(),
  ]
  return characters.length <= most ? characters.join('') : `${characters.slice(0, most - 1).join('')}…`
}
