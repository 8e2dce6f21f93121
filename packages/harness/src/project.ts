import type { AssistantMessage, Message, ToolResultMessage, UserMessage } from '@reve/providers/model'
import type { EntryLine, SessionView } from '@reve/session-log'
import { HarnessError } from './errors.ts'
import { callsOf, readMessage, textOf } from './messages.ts'
import { abortedNote, emptyNote, missingNote } from './notes.ts'
import { noteResult } from './settle.ts'

/**
 * The messages that a model sees of a path (root first). Invariants, each a test:
 *
 * 1. Every call has exactly one result, directly after its turn, in the order of the calls. A missing one is made up and
 *    says that the outcome is unknown.
 * 2. A result without a call does not appear.
 * 3. No lone surrogate is in any text.
 * 4. Reasoning goes to the model that wrote it, byte for byte, and to no other.
 * 5. Failed attempts do not appear. An aborted answer stays as its text and a note, without reasoning or calls; without
 *    text it does not appear.
 * 6. A turn with neither text nor calls does not appear, nor does an empty text. A result is never empty.
 * 7. Within a run each request extends the one before it: a path that ends at a turn boundary projects to a prefix of
 *    what every longer path projects to.
 * 8. The newest compaction stands for what is before it, but for the tail that it keeps.
 * 9. Records play no part.
 *
 * @throws HarnessError `corrupt_session` for an entry whose message cannot be read.
 */
export function project(path: readonly EntryLine[], options: { readonly model: string }): readonly Message[] {
  return paired(messagesOf(path), options.model)
}

/** Messages of any making as an API takes them: invariants 1, 2, 4, 5 and 6. */
export function paired(messages: readonly Message[], model: string): readonly Message[] {
  const items: Item[] = []
  const open = new Map<string, Slot[]>()
  for (const message of messages) {
    switch (message.role) {
      case 'user':
        items.push({ message: withoutEmptyText(message), slots: [] })
        break
      case 'assistant': {
        const shown = shownAnswer(message, model)
        if (shown === undefined) break
        const slots = callsOf(shown).map((call): Slot => ({
          turn: items.length,
          result: noteResult(call, missingNote, { interrupted: true }),
        }))
        for (const slot of slots) open.set(slot.result.toolCallId, [...(open.get(slot.result.toolCallId) ?? []), slot])
        items.push({ message: shown, slots })
        break
      }
      case 'toolResult': {
        const waiting = open.get(message.toolCallId) ?? []
        const slot = slotFor(waiting)
        if (slot === undefined) break
        slot.result = neverEmpty(message)
        open.set(
          message.toolCallId,
          waiting.filter((other) => other !== slot),
        )
        break
      }
      default:
        message satisfies never
    }
  }
  return items.flatMap(({ message, slots }) => [message, ...slots.map(({ result }) => result)])
}

/**
 * What a model may see of the path to a leaf, root first: from the first entry that the newest compaction keeps on. It
 * projects to the same as the whole path, and costs what it returns.
 */
export function livePath(view: Pick<SessionView, 'entry'>, leafId: string | null): readonly EntryLine[] {
  const path: EntryLine[] = []
  let until: string | null | undefined
  for (const entry of backwards(view, leafId)) {
    path.push(entry)
    if (until === undefined && isCompaction(entry)) {
      const { firstKeptEntryId } = entry
      until = typeof firstKeptEntryId === 'string' ? firstKeptEntryId : null
    }
    if (until === null || entry.id === until) break
  }
  return path.toReversed()
}

/** The entries from a leaf to the root. */
function* backwards(view: Pick<SessionView, 'entry'>, leafId: string | null): Generator<EntryLine, void, void> {
  for (let id = leafId; id !== null;) {
    const entry = view.entry(id)
    if (entry === undefined) return
    yield entry
    id = entry.parentId
  }
}

type Slot = { readonly turn: number; result: ToolResultMessage }
type Item = { readonly message: Message; readonly slots: readonly Slot[] }

/** Call ids come again in later turns: a result belongs to the newest turn that still waits for it. */
function slotFor(slots: readonly Slot[]): Slot | undefined {
  const newest = slots.at(-1)?.turn
  return slots.find(({ turn }) => turn === newest)
}

/** The messages from the newest compaction on, its summary first. */
function messagesOf(path: readonly EntryLine[]): readonly Message[] {
  const { summary, entries } = sinceCompaction(path)
  const messages = entries.flatMap(messagesOfEntry)
  return summary === undefined ? messages : [summaryMessage(summary), ...messages]
}

/**
 * What a path says since its newest compaction: the summary, if there is one, and the entries that it kept together with
 * those after it.
 *
 * @throws HarnessError `corrupt_session` for a compaction that keeps what is not before it.
 */
export function sinceCompaction(path: readonly EntryLine[]): {
  readonly summary?: string
  readonly entries: readonly EntryLine[]
} {
  const newest = path.findLastIndex(isCompaction)
  const compaction = path[newest]
  if (compaction === undefined) return { entries: path }
  const { summary, firstKeptEntryId } = compaction
  const from = firstKeptEntryId === null ? newest : path.findIndex(({ id }) => id === firstKeptEntryId)
  if (from < 0 || from > newest)
    throw unreadable(compaction, `it keeps entry ${JSON.stringify(firstKeptEntryId)}, which is not before it`)
  return { summary: typeof summary === 'string' ? summary.toWellFormed() : '', entries: path.slice(from) }
}

const isCompaction = ({ type }: EntryLine): boolean => type === 'compaction'

function messagesOfEntry(entry: EntryLine): readonly Message[] {
  const read = readMessage(entry)
  switch (read.type) {
    case 'message':
      return [read.message]
    case 'other':
      return []
    case 'invalid':
      throw unreadable(entry, read.problem)
    default:
      return read satisfies never
  }
}

function unreadable(entry: EntryLine, problem: string): HarnessError {
  return new HarnessError('corrupt_session', `entry ${JSON.stringify(entry.id)} (seq ${entry.seq}): ${problem}`)
}

function summaryMessage(summary: string): UserMessage {
  // What a summary quotes cannot end it.
  const text = summary.replaceAll(/<(?=[\s/]*summary\b)/giu, '&lt;')
  return {
    role: 'user',
    content: [{ type: 'text', text: `What was said before this point, in summary:\n<summary>\n${text}\n</summary>` }],
  }
}

function shownAnswer(message: AssistantMessage, model: string): AssistantMessage | undefined {
  if (message.stopReason === 'aborted') {
    const text = textOf(message)
    if (text.trim() === '') return undefined
    return { ...message, content: [{ type: 'text', text: `${text.trimEnd()}\n\n${abortedNote}` }] }
  }
  const content = message.content.filter((part) =>
    part.type === 'text' ? part.text !== '' : part.type === 'reasoning' ? message.model === model : true,
  )
  // Reasoning alone is no turn: APIs refuse it without what it led to.
  return content.some((part) => part.type !== 'reasoning') ? { ...message, content } : undefined
}

function withoutEmptyText(message: UserMessage): UserMessage {
  const content = message.content.filter((part) => part.type !== 'text' || part.text !== '')
  if (content.length === message.content.length && content.length > 0) return message
  return { ...message, content: content.length > 0 ? content : [{ type: 'text', text: emptyNote }] }
}

function neverEmpty(message: ToolResultMessage): ToolResultMessage {
  const content = message.content.filter((part) => part.type !== 'text' || part.text !== '')
  if (content.length === message.content.length && content.length > 0) return message
  return { ...message, content: content.length > 0 ? content : [{ type: 'text', text: emptyNote }] }
}

/**
 * Whether a conversation waits for the model: it ends with something said to it, or with results that it has to see
 * (and not with results that ended the run). A summary is nothing that is said: what it stands for counts.
 */
export function waitsForModel(path: readonly EntryLine[], options: { readonly model: string }): boolean {
  return waits(path.toReversed(), options.model)
}

/** The same for the path to a leaf, of which only the end is looked at. */
export function leafWaits(view: Pick<SessionView, 'entry'>, leafId: string | null, model: string): boolean {
  return waits(backwards(view, leafId), model)
}

function waits(fromEnd: Iterable<EntryLine>, model: string): boolean {
  /** Of the results after the newest answer: whether all of them ask to end the run. */
  let terminated: boolean | undefined
  for (const entry of fromEnd) {
    const [message] = messagesOfEntry(entry)
    if (message?.role === 'user') return true
    if (message?.role === 'toolResult') terminated = (terminated ?? true) && entry['terminate'] === true
    if (message?.role !== 'assistant') continue
    const shown = shownAnswer(message, model)
    if (shown !== undefined) return callsOf(shown).length > 0 && terminated !== true
  }
  return false
}
