import type { Line } from './spans.ts'
import { lineWidth } from './spans.ts'
import type { Painter } from './theme.ts'

/** What is to be seen below the scrollback. */
export type Frame = {
  /** At most as many as the terminal has rows, less one. */
  readonly rows: readonly Line[]
  /** Where the terminal's cursor stands, in `rows`: where an input method opens its window. Undefined hides it. */
  readonly cursor: { readonly row: number; readonly column: number } | undefined
}

/**
 * What a terminal does with rows that are longer than its new width: `tracks` breaks them anew and the cursor stays in its place in the
 * text; `sinks` the same, but leaves the cursor's own row, and the cursor goes down by all rows that are added, also below it (xterm.js); `cuts` leaves each row one row.
 */
export type Reflow = 'tracks' | 'sinks' | 'cuts'

const begin = '\u001b[?2026h\u001b[?25l\u001b[?7l'
const end = '\u001b[?7h\u001b[?2026l'
const eraseBelow = '\u001b[J'
const eraseLine = '\u001b[K'
const showCursor = '\u001b[?25h'

const up = (rows: number): string => (rows > 0 ? `\u001b[${rows}A` : '')
const down = (rows: number): string => (rows > 0 ? `\u001b[${rows}B` : '')

/**
 * The live area at the bottom of the main screen. Finished rows go into the scrollback once; of the live rows only those that
 * changed are written. What a frame costs depends on the live rows alone. Gives bytes and writes none.
 *
 * Lines never wrap by themselves while a frame is written: a character that the terminal takes for wider than we do costs its own row a
 * cell, and no row its place.
 */
export class Screen {
  /** As painted: what stands there now. */
  #drawn: readonly string[] = []
  #widths: readonly number[] = []
  /** The row of `#drawn` in which the cursor stands. */
  #at = 0
  #cursor: Frame['cursor']
  #columns: number

  readonly #reflow: Reflow

  constructor(columns: number, reflow: Reflow = 'tracks') {
    this.#columns = columns
    this.#reflow = reflow
  }

  /** The bytes of a frame; '' when nothing changed. `commit`: rows that are finished. */
  draw(frame: Frame, paint: Painter, commit: readonly Line[] = []): string {
    const rows = frame.rows.map(paint)
    const body = commit.length > 0 ? this.#replaced(rows, commit, paint) : this.#changed(rows)
    const place = this.#placed(frame.cursor, rows.length)
    this.#drawn = rows
    this.#widths = frame.rows.map(lineWidth)
    if (body === '' && place === undefined) return ''
    this.#cursor = frame.cursor
    return `${begin}${body}${place ?? this.#placeCursor(frame.cursor)}${end}`
  }

  /** The terminal has another width: rows that do not fit any more took several, above the cursor too. */
  resize(columns: number): string {
    if (columns === this.#columns) return ''
    const above = this.#rowsAbove(Math.max(1, columns))
    this.#columns = columns
    this.#drawn = []
    this.#widths = []
    this.#at = 0
    return `\r${up(above)}${eraseBelow}`
  }

  /** How many rows of the live area are above the cursor, once the terminal has made it that narrow. */
  #rowsAbove(columns: number): number {
    const over = (width: number): number => Math.max(0, Math.ceil(width / columns) - 1)
    switch (this.#reflow) {
      case 'cuts':
        return this.#at
      case 'tracks': {
        const added = this.#widths.slice(0, this.#at).reduce((sum, width) => sum + over(width), 0)
        const own = Math.max(0, (this.#widths[this.#at] ?? 0) - 1)
        return this.#at + added + Math.floor(Math.min(this.#cursor?.column ?? 0, own) / columns)
      }
      case 'sinks':
        // From the last row up; the row that the cursor is in by then is left as it is.
        return this.#widths.reduceRight((at, width, row) => (row === at ? at : at + over(width)), this.#at)
      default:
        return this.#reflow satisfies never
    }
  }

  /** Takes the live rows away and leaves the cursor, seen, where they began. */
  clear(): string {
    const bytes = `\r${up(this.#at)}${eraseBelow}${showCursor}`
    this.#drawn = []
    this.#widths = []
    this.#at = 0
    return bytes
  }

  /** Nothing of what was drawn is there any more; the cursor stands at the start of a row. */
  forget(): void {
    this.#drawn = []
    this.#widths = []
    this.#at = 0
  }

  #replaced(rows: readonly string[], commit: readonly Line[], paint: Painter): string {
    const bytes = `\r${up(this.#at)}${eraseBelow}${commit.map((row) => `${paint(row)}\r\n`).join('')}${rows.join('\r\n')}`
    this.#at = Math.max(0, rows.length - 1)
    return bytes
  }

  #changed(rows: readonly string[]): string {
    const old = this.#drawn
    const shared = Math.min(old.length, rows.length)
    let bytes = ''
    let at = this.#at
    const go = (row: number): void => {
      bytes += `\r${row < at ? up(at - row) : down(row - at)}`
      at = row
    }
    for (let row = 0; row < shared; row++) {
      if (old[row] === rows[row]) continue
      go(row)
      bytes += `${rows[row] ?? ''}${eraseLine}`
    }
    if (rows.length > old.length) {
      if (old.length > 0) {
        go(old.length - 1)
        bytes += `\r\n`
      }
      bytes += rows.slice(old.length).join('\r\n')
      at = rows.length - 1
    } else if (rows.length < old.length) {
      if (rows.length === 0) {
        go(0)
        bytes += eraseBelow
      } else {
        go(rows.length)
        bytes += eraseBelow
      }
    }
    this.#at = Math.max(0, at)
    return bytes
  }

  /** Undefined when the cursor is where it should be. */
  #placed(cursor: Frame['cursor'], rows: number): string | undefined {
    const same =
      cursor?.row === this.#cursor?.row &&
      cursor?.column === this.#cursor?.column &&
      (cursor === undefined || cursor.row === this.#at)
    return same && rows > 0 ? undefined : this.#placeCursor(cursor)
  }

  #placeCursor(cursor: Frame['cursor']): string {
    if (cursor === undefined) return ''
    const move = cursor.row < this.#at ? up(this.#at - cursor.row) : down(cursor.row - this.#at)
    this.#at = cursor.row
    return `${move}\r${cursor.column > 0 ? `\u001b[${cursor.column}C` : ''}${showCursor}`
  }
}
