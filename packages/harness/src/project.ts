import type { AssistantMessage, Message, ToolResultMessage, UserMessage } from '@reve/providers/model'
import type { EntryLine } from '@reve/session-log'
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
  const items: Item[] = []
  const open = new Map<string, Slot[]>()
  for (const message of messagesOf(path)) {
    switch (message.role) {
      case 'user':
        items.push({ message: withoutEmptyText(message), slots: [] })
        break
      case 'assistant': {
        const shown = shownAnswer(message, options.model)
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

type Slot = { readonly turn: number; result: ToolResultMessage }
type Item = { readonly message: Message; readonly slots: readonly Slot[] }

/** Call ids come again in later turns: a result belongs to the newest turn that still waits for it. */
function slotFor(slots: readonly Slot[]): Slot | undefined {
  const newest = slots.at(-1)?.turn
  return slots.find(({ turn }) => turn === newest)
}

/** The messages from the newest compaction on, its summary first. */
function messagesOf(path: readonly EntryLine[]): readonly Message[] {
  const cut = path.findLastIndex(({ type }) => type === 'compaction')
  const compaction = path[cut]
  if (compaction === undefined) return path.flatMap(messagesOfEntry)
  const firstKept = compaction['firstKeptEntryId']
  const from = firstKept === null ? cut : path.findIndex(({ id }) => id === firstKept)
  if (from < 0 || from > cut)
    throw unreadable(compaction, `it keeps entry ${JSON.stringify(firstKept)}, which is not before it`)
  return [summaryOf(compaction), ...path.slice(from).flatMap(messagesOfEntry)]
}

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

function summaryOf(compaction: EntryLine): UserMessage {
  const text = typeof compaction['summary'] === 'string' ? compaction['summary'].toWellFormed() : ''
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
  return { ...message, content: content.length > 0 ? content : [{ type: 'text', text: emptyNote }] }
}

function neverEmpty(message: ToolResultMessage): ToolResultMessage {
  const content = message.content.filter((part) => part.type !== 'text' || part.text !== '')
  return { ...message, content: content.length > 0 ? content : [{ type: 'text', text: emptyNote }] }
}

/**
 * Whether a conversation waits for the model: it ends with something said to it, or with results that it has to see
 * (and not with results that ended the run).
 */
export function waitsForModel(path: readonly EntryLine[], options: { readonly model: string }): boolean {
  const last = project(path, options).at(-1)
  if (last === undefined || last.role === 'assistant') return false
  return last.role === 'user' || !endsTerminated(path)
}

/** Whether all results of the path's last turn ask to end the run. */
function endsTerminated(path: readonly EntryLine[]): boolean {
  const answer = path.findLastIndex((entry) => roleOf(entry) === 'assistant')
  const results = path.slice(answer + 1).filter((entry) => roleOf(entry) === 'toolResult')
  return results.length > 0 && results.every((entry) => entry['terminate'] === true)
}

function roleOf(entry: EntryLine): Message['role'] | undefined {
  const read = readMessage(entry)
  return read.type === 'message' ? read.message.role : undefined
}
