import { Screen, type Frame } from './screen.ts'
import type { Line } from './spans.ts'
import type { Painter } from './theme.ts'

/** Frames that nobody waits for come at most so often. */
const frameMs = 33
/** Rows that one frame writes to the scrollback: more come with the next, so that a key is never long in coming. */
const rowsAtOnce = 400

/** When frames are drawn, and with what: finished rows first, then the live area. */
export class Display {
  readonly #write: (bytes: string) => void
  readonly #frame: () => Frame
  readonly #now: () => number
  #screen: Screen
  #paint: Painter
  #finished: Line[] = []
  #timer: NodeJS.Timeout | NodeJS.Immediate | undefined
  #urgent = false
  #last = 0
  #held = false
  /** Whether anything was written: the first block has no space before it. */
  #begun = false

  /** @param frame the live area as it is to be seen now; called once a frame. */
  constructor(parts: {
    readonly columns: number
    readonly paint: Painter
    readonly write: (bytes: string) => void
    readonly frame: () => Frame
    readonly now: () => number
  }) {
    this.#screen = new Screen(parts.columns)
    this.#paint = parts.paint
    this.#write = parts.write
    this.#frame = parts.frame
    this.#now = parts.now
  }

  set paint(paint: Painter) {
    this.#paint = paint
    this.redraw()
  }

  /** Rows for the scrollback, for good. */
  commit(rows: readonly Line[]): void {
    for (const row of rows) this.#finished.push(row)
    if (rows.length > 0) this.#begun = true
    this.request()
  }

  /** The rows of a block, apart from what is before it. */
  commitBlock(rows: readonly Line[]): void {
    if (rows.length > 0) this.commit(this.#begun ? [[], ...rows] : rows)
  }

  /** Something changed. `urgent`: somebody pressed a key. */
  request(urgent = false): void {
    if (this.#held || (this.#timer !== undefined && (this.#urgent || !urgent))) return
    this.#cancel()
    this.#urgent = urgent
    const wait = urgent ? 0 : Math.max(0, this.#last + frameMs - this.#now())
    this.#timer = wait === 0 ? setImmediate(() => this.draw()) : setTimeout(() => this.draw(), wait)
  }

  /** Draws now. */
  draw(): void {
    this.#cancel()
    if (this.#held) return
    this.#last = this.#now()
    // What is finished while the frame is made is written with it.
    this.#held = true
    const frame = this.#frame()
    this.#held = false
    const rows = this.#finished.splice(0, rowsAtOnce)
    this.#write(this.#screen.draw(frame, this.#paint, rows))
    if (this.#finished.length > 0) this.request()
  }

  /** The terminal has another size. */
  resize(columns: number): void {
    this.#write(this.#screen.resize(columns))
    this.request(true)
  }

  /** Draws the live area anew. */
  redraw(): void {
    this.#write(this.#screen.clear())
    this.request(true)
  }

  /** Nothing of what was drawn is on the screen any more. */
  forget(): void {
    this.#screen.forget()
    this.request(true)
  }

  /** Writes what is finished, and gives the bytes that take the live area away. Nothing is drawn until `resume`. */
  end(): string {
    this.#cancel()
    this.#held = true
    const rows = this.#finished.splice(0)
    const bytes = rows.length === 0 ? '' : this.#screen.draw({ rows: [], cursor: undefined }, this.#paint, rows)
    return bytes + this.#screen.clear()
  }

  resume(): void {
    this.#held = false
    this.forget()
  }

  #cancel(): void {
    if (this.#timer === undefined) return
    if (this.#timer instanceof Object && 'refresh' in this.#timer) clearTimeout(this.#timer)
    else clearImmediate(this.#timer)
    this.#timer = undefined
  }
}
