import { createIdSource } from '@reve/base'
import { randomBytes } from 'node:crypto'
import type { FileHandle } from 'node:fs/promises'
import { realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { type Draft, Stage, stageDraft } from './draft.ts'
import { ioError, SessionLogError } from './errors.ts'
import { checkHeader, type EntryLine, type Header, MAX_HEADER_BYTES, RESERVED_KEYS } from './format.ts'
import { type JsonObject, plainJson } from './json.ts'
import { labelFact, labels } from './labels.ts'
import { nameDraft } from './names.ts'
import { createWhole } from './new-file.ts'
import { readSession, writeAll } from './session.ts'
import { SessionIndex, type SessionView } from './view.ts'

/** Options of {@link forkSession}. */
export type ForkOptions = {
  /** The last entry to keep, of any lane; `null` keeps none. Default: the leaf of `lane`. */
  readonly at?: string | null
  /** Whose leaf `at` is when it is not given: default `main`. */
  readonly lane?: string
  /** The new session's name, as `nameDraft` takes it. Default none: two sessions with one name help nobody. */
  readonly name?: string
  /** Milliseconds since 1970; default `Date.now`. */
  readonly now?: () => number
  /** Makes the ids of the new session (`s_`) and its records (`r_`): default time-ordered ids of `@reve/base`. */
  readonly newId?: (prefix: string) => string
}

/** What {@link forkSession} made. */
export type ForkReport = {
  readonly target: string
  /** The new session's. */
  readonly id: string
  /** As it stands in the new header: the source's id, and the last entry that was kept. */
  readonly forkedFrom: { readonly id: string; readonly entryId: string | null }
  readonly entries: number
  readonly labels: number
}

/** So much is gathered before it is written. */
const CHUNK = 1024 * 1024

/**
 * Starts a new session (0600) with the conversation that another one had at an entry: the entries from the root to there, with
 * their ids, parents and times, all of them on lane `main`; compactions are among them, so that each still finds the entry
 * that it keeps from. Labels of these entries go along; other facts, records and branches do not. The header takes over
 * `cwd` and the writer's own keys, and says in `forkedFrom` where it is from.
 *
 * The source needs no lock and is not changed; a writer at work or a torn tail is no failure. The target is there whole or not at
 * all, and never replaces anything.
 *
 * @throws SessionLogError `unknown_entry` (no such entry or lane), `exists`, `bad_draft` (the name; an entry that this package
 * would not write), `io`, and for the source what `readSession` says of it.
 */
export async function forkSession(source: string, target: string, options: ForkOptions = {}): Promise<ForkReport> {
  const now = options.now ?? Date.now
  const newId = options.newId ?? createIdSource({ now, random: (n) => randomBytes(n) })
  const name = options.name === undefined ? [] : [nameDraft(options.name)]
  const view = await readSession(source)
  const at = options.at === undefined ? leafOf(view, source, options.lane) : options.at
  const path = view.path(at)
  const kept = new Set(path.map(({ id }) => id))
  const labelled = [...labels(view)].filter(([id]) => kept.has(id)).map(([id, label]) => labelFact(id, label, 'main'))
  try {
    const place = join(await realpath(dirname(target)), basename(target))
    const ts = new Date(now()).toISOString()
    const forkedFrom = { id: view.header.id, entryId: at }
    const head = headerOf(place, { ...view.header, id: newId('s_'), ts, forkedFrom })
    const stage = new Stage(new SessionIndex(place, head.header))
    const bytesOf = (draft: Draft, when = ts) => stageDraft(draft, stage, { file: place, ts: when, newId }).bytes
    await createWhole(place, (handle) =>
      writeInChunks(
        handle,
        (function* () {
          yield head.bytes
          for (const draft of name) yield bytesOf(draft)
          for (const entry of path) yield bytesOf(draftOf(entry), entry.ts)
          for (const draft of labelled) yield bytesOf(draft)
        })(),
      ),
    )
    return { target: place, id: head.header.id, forkedFrom, entries: path.length, labels: labelled.length }
  } catch (error) {
    throw ioError(target, 'cannot make the fork', error)
  }
}

function leafOf(view: SessionView, file: string, lane: string | undefined): string | null {
  // A session that nobody has used yet has no lanes, and forks to one like it.
  if (lane !== undefined && !view.lanes().includes(lane)) {
    throw new SessionLogError('unknown_entry', `there is no lane ${JSON.stringify(lane)}`, { file })
  }
  return view.leaf(lane ?? 'main')
}

function headerOf(file: string, keys: JsonObject): { readonly header: Header; readonly bytes: Uint8Array } {
  const bad = (reason: string) => new SessionLogError('bad_draft', `header: ${reason}`, { file })
  const plain = plainJson(keys)
  if (!plain.ok) throw bad(`${plain.problem.path}: ${plain.problem.reason}`)
  const checked = checkHeader(plain.value)
  if ('problem' in checked) throw bad(checked.problem.message)
  const bytes = Buffer.from(`${JSON.stringify(checked.header)}\n`, 'utf8')
  if (bytes.length > MAX_HEADER_BYTES)
    throw bad(`it has ${bytes.length} bytes; at most ${MAX_HEADER_BYTES} are allowed`)
  return { header: checked.header, bytes }
}

/** An entry as a draft of itself: the parent is given, so that no lane decides it. */
function draftOf(entry: EntryLine): Draft {
  const payload = Object.fromEntries(Object.entries(entry).filter(([key]) => !RESERVED_KEYS.has(key)))
  return { kind: 'entry', lane: 'main', type: entry.type, id: entry.id, parentId: entry.parentId, payload }
}

async function writeInChunks(handle: FileHandle, lines: Iterable<Uint8Array>): Promise<void> {
  let held: Uint8Array[] = []
  let bytes = 0
  for (const line of lines) {
    held.push(line)
    bytes += line.length
    if (bytes < CHUNK) continue
    await writeAll(handle, Buffer.concat(held))
    held = []
    bytes = 0
  }
  await writeAll(handle, Buffer.concat(held))
}
