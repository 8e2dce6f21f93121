import { eastAsianWidth } from 'get-east-asian-width'

const segmenter = new Intl.Segmenter('en', { granularity: 'grapheme' })
/**
 * Characters that stand alone beside each other: ASCII, Latin, Greek, Cyrillic, punctuation, arrows, boxes, kana, Han, Hangul syllables.
 * The segmenter knows all, and is fifty times as slow.
 */
const alone =
  /^[\n\u0020-\u007e\u00a1-\u00ac\u00ae-\u02ff\u0370-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u27e6-\u27ef\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]*$/
const plain = /^[\u0020-\u007e]*$/
const emoji = /^(?:\p{Emoji_Presentation}|\p{RI}\p{RI}|\p{Emoji}\ufe0f|[#*0-9]\ufe0f?\u20e3)/u
/** Marks, format characters, and the vowels and final consonants of Hangul, which stand on the cell before them. */
const zeroWidth = /^(?:\p{Mn}|\p{Me}|\p{Cf}|[\u1160-\u11ff\ud7b0-\ud7ff])$/u

/** What a reader sees as one character each: the smallest pieces that text may be cut into. */
export function graphemes(text: string): readonly string[] {
  if (alone.test(text)) return text.split('')
  return Array.from(segmenter.segment(text), ({ segment }) => segment)
}

/** Where the grapheme before `index` begins; 0 at the start. */
export function previousGrapheme(text: string, index: number): number {
  // Far enough for any cluster that people write; longer ones fall into pieces, never into half a code point.
  const from = Math.max(0, index - 64)
  const last = graphemes(text.slice(from, index)).at(-1)
  return last === undefined ? 0 : index - last.length
}

/** Where the grapheme at `index` ends. */
export function nextGrapheme(text: string, index: number): number {
  const [first] = segmenter.segment(text.slice(index, index + 64))
  return index + (first?.segment.length ?? 0)
}

/**
 * Cells that text takes in a terminal: 2 for wide East Asian characters and for emoji (a sequence that is one picture counts
 * once), 0 for what stands on the character before it. Source: UAX #11, UTS #51.
 */
export function cellWidth(text: string): number {
  if (plain.test(text)) return text.length
  let width = 0
  if (alone.test(text)) {
    for (let at = 0; at < text.length; at++) width += eastAsianWidth(text.charCodeAt(at))
    return width
  }
  for (const { segment } of segmenter.segment(text)) width += graphemeWidth(segment)
  return width
}

/** {@link cellWidth} of one grapheme. */
export function graphemeWidth(grapheme: string): number {
  if (grapheme.length === 1 && plain.test(grapheme)) return 1
  if (emoji.test(grapheme)) return 2
  let width = 0
  for (const character of grapheme) {
    const point = character.codePointAt(0) ?? 0
    if (point === 0xad) width += 1
    else if (!zeroWidth.test(character)) width += eastAsianWidth(point)
  }
  // A syllable that is written in parts takes the room of one that is not.
  return /^[\u1100-\u115f]/u.test(grapheme) ? Math.min(width, 2) : width
}
