import * as v from 'valibot'

/** One line of what a search found: a match, or a line around one. */
export type GrepLine = {
  readonly path: Uint8Array
  readonly number: number
  readonly text: string
  readonly isMatch: boolean
  /** Where in the text the match begins, if that is known. */
  readonly at: number
}

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true })
const textOf = (bytes: Uint8Array): string => utf8.decode(bytes).replace(/\r?\n?$/, '')

/** Text, or bytes that are no text, as ripgrep writes it. */
const given = v.pipe(
  v.union([v.object({ text: v.string() }), v.object({ bytes: v.string() })]),
  v.transform((value) => ('text' in value ? Buffer.from(value.text) : Buffer.from(value.bytes, 'base64'))),
)
const ripgrepLine = v.object({
  type: v.picklist(['match', 'context']),
  data: v.object({
    path: given,
    lines: given,
    line_number: v.number(),
    submatches: v.array(v.object({ start: v.number() })),
  }),
})

/** A line of `rg --json`; undefined for those that tell of something else. */
export function ripgrepLineOf(json: Uint8Array): GrepLine | undefined {
  let value: unknown
  try {
    value = JSON.parse(utf8.decode(json))
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
  const read = v.safeParse(ripgrepLine, value)
  if (!read.success) return undefined
  const { type, data } = read.output
  const at = utf8.decode(data.lines.subarray(0, data.submatches[0]?.start ?? 0)).length
  return { path: data.path, number: data.line_number, text: textOf(data.lines), isMatch: type === 'match', at }
}

/**
 * A line of `grep -nHZ`, of which the name is ended by a NUL; undefined for the `--` between groups. Names may hold line feeds,
 * so the pieces of a line come one by one: `take` gives the line as soon as it is whole.
 */
export function createGrepParser(take: (line: GrepLine) => void): (piece: Uint8Array) => void {
  let begun: Uint8Array[] = []
  return (piece) => {
    const whole = begun.length === 0 ? piece : Buffer.concat([...begun, Buffer.of(10), piece])
    const nul = whole.indexOf(0)
    if (nul < 0) {
      // A separator, or the first line of a name of several.
      begun = begun.length === 0 && utf8.decode(piece) === '--' ? [] : [whole]
      return
    }
    begun = []
    const [, number, mark, text] = /^(\d+)([:-])(.*)$/s.exec(utf8.decode(whole.subarray(nul + 1))) ?? []
    if (number === undefined || text === undefined) return
    const path = Uint8Array.from(whole.subarray(0, nul))
    take({ path, number: Number(number), text: text.replace(/\r$/, ''), isMatch: mark === ':', at: 0 })
  }
}
