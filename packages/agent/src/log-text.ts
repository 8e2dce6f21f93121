import type { Json, SessionView } from '@reve/session-log'
import * as v from 'valibot'

const Spoken = v.object({
  role: v.string(),
  content: v.array(v.object({ type: v.string(), text: v.exactOptional(v.string()) })),
})

/** Who said a message of a log, and its text; undefined for what is none. */
export function spokenIn(message: Json | undefined): { readonly role: string; readonly text: string } | undefined {
  const read = v.safeParse(Spoken, message)
  if (!read.success) return undefined
  const { role, content } = read.output
  return { role, text: content.flatMap(({ text }) => (text === undefined ? [] : [text])).join('\n') }
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
