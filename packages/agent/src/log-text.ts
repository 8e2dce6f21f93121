import type { Json, SessionView } from '@reve/session-log'
import * as v from 'valibot'

const spokenMessage = v.object({
  role: v.string(),
  stopReason: v.exactOptional(v.string()),
  content: v.array(v.object({ type: v.string(), text: v.exactOptional(v.string()) })),
})

/** What somebody said in a log. */
export type Spoken = {
  readonly role: string
  readonly text: string
  /** It ends where the model may write no more at once. */
  readonly cut: boolean
}

/** Who said a message of a log, and its text; undefined for what is none. */
export function spokenIn(message: Json | undefined): Spoken | undefined {
  const read = v.safeParse(spokenMessage, message)
  if (!read.success) return undefined
  const { role, content, stopReason } = read.output
  const text = content.flatMap((part) => part.text ?? []).join('\n')
  return { role, text, cut: stopReason === 'length' }
}

/** The ids of messages that a session has accepted and not taken back, and whose text `isMeant`; of entries that may not be there yet. */
export function acceptedMessages(view: SessionView, isMeant: (text: string) => boolean): readonly string[] {
  const records = view.records()
  const cancelled = new Set(records.flatMap(({ type, entryId }) => (type === 'message_cancelled' ? [entryId] : [])))
  return records.flatMap(({ type, entryId, message }) => {
    if (type !== 'message_queued' || typeof entryId !== 'string' || cancelled.has(entryId)) return []
    return isMeant(spokenIn(message)?.text ?? '') ? [entryId] : []
  })
}
