import { SessionLogError } from './errors.ts'
import { checkLine, type Known, type Line, MAX_LINE_BYTES, RESERVED_KEYS } from './format.ts'
import { isObject, type JsonObject, plainJson } from './json.ts'
import { leafSetBy } from './view.ts'

/** What an append takes. `seq` and `ts` are filled in, and `id` when none is given. */
export type Draft =
  | {
      readonly kind: 'record'
      readonly lane: string
      readonly type: string
      /** Stands beside the envelope in the line; cannot carry the envelope's keys. */
      readonly payload: JsonObject
      readonly id?: string
    }
  | {
      readonly kind: 'entry'
      readonly lane: string
      readonly type: string
      readonly payload: JsonObject
      /** Given when an intent named it. */
      readonly id?: string
      /** Default: the lane's leaf, the entries of the same append and of those before it counted. */
      readonly parentId?: string | null
    }

/** A line and the bytes that say it. `line` is what a reader of the bytes will see, and shares nothing with the draft. */
export type Staged = { readonly line: Line; readonly bytes: Uint8Array }

/** What stands before a draft: the index, or a stage above it. */
export interface Ground extends Known {
  leaf(lane: string): string | null
}

/**
 * What the file will look like when everything accepted so far is on disk: lines that wait, above the ground that they
 * stand on. Drafts are checked against this, so that appends can queue without waiting for each other. One append
 * stages on a layer of its own, merged when all of its drafts are good: it counts as a whole or not at all.
 */
export class Stage implements Ground {
  readonly #ground: Ground
  readonly #ids = new Map<string, 'record' | 'entry'>()
  readonly #leaves = new Map<string, string | null>()
  #lastSeq: number

  constructor(ground: Ground) {
    this.#ground = ground
    this.#lastSeq = ground.lastSeq
  }

  get lastSeq(): number {
    return this.#lastSeq
  }

  has(id: string): boolean {
    return this.#ids.has(id) || this.#ground.has(id)
  }

  hasEntry(id: string): boolean {
    return this.#ids.get(id) === 'entry' || this.#ground.hasEntry(id)
  }

  leaf(lane: string): string | null {
    const staged = this.#leaves.get(lane)
    return staged === undefined ? this.#ground.leaf(lane) : staged
  }

  add(line: Line): void {
    this.#ids.set(line.id, line.kind)
    this.#lastSeq = line.seq
    const leaf = line.kind === 'entry' ? line.id : leafSetBy(line)
    if (leaf !== undefined) this.#leaves.set(line.lane, leaf)
  }

  /** Takes over all of a layer that was made above this stage. */
  merge(layer: Stage): void {
    for (const [id, kind] of layer.#ids) this.#ids.set(id, kind)
    for (const [lane, leaf] of layer.#leaves) this.#leaves.set(lane, leaf)
    this.#lastSeq = layer.#lastSeq
  }
}

/** Makes a line of a draft and puts it on the stage. Throws `bad_draft`, naming what is wrong with it. */
export function stageDraft(
  draft: Draft,
  stage: Stage,
  context: { readonly file: string; readonly ts: string; readonly newId: (prefix: string) => string },
): Staged {
  const what = `${draft.kind} ${JSON.stringify(draft.type)}`
  const bad = (reason: string): never => {
    throw new SessionLogError('bad_draft', `${what}: ${reason}`, { file: context.file })
  }
  // A Date or a Map would spread to nothing: only what JSON can say is looked at.
  const payload = plainJson(draft.payload)
  if (!payload.ok)
    return bad(`payload${payload.problem.path === '' ? '' : `/${payload.problem.path}`}: ${payload.problem.reason}`)
  if (!isObject(payload.value)) return bad('the payload is not an object')
  const reserved = Object.keys(payload.value).find((key) => RESERVED_KEYS.has(key))
  if (reserved !== undefined) return bad(`the payload carries the reserved key ${JSON.stringify(reserved)}`)

  const lane = draft.lane.toWellFormed()
  const envelope = {
    kind: draft.kind,
    id: (draft.id ?? context.newId(draft.kind === 'entry' ? 'e_' : 'r_')).toWellFormed(),
    seq: stage.lastSeq + 1,
    ts: context.ts,
    lane,
    type: draft.type.toWellFormed(),
    ...(draft.kind === 'entry' ? { parentId: parentOf(draft.parentId, lane, stage) } : {}),
  }
  const line = { ...envelope, ...payload.value }
  const bytes = Buffer.from(`${JSON.stringify(line)}\n`, 'utf8')
  if (bytes.length > MAX_LINE_BYTES)
    return bad(`the line has ${bytes.length} bytes; at most ${MAX_LINE_BYTES} are allowed`)
  // The payload is a copy that says nothing but what its text says: the line is what a reader of the bytes will see.
  const checked = checkLine(line, stage)
  if ('problem' in checked) return bad(checked.problem.message)
  stage.add(checked.line)
  return { line: checked.line, bytes }
}

const parentOf = (given: string | null | undefined, lane: string, stage: Stage): string | null =>
  given === undefined ? stage.leaf(lane) : (given?.toWellFormed() ?? null)
