import { isReveError } from '@reve/base'
import type { Harness, RunResult } from '@reve/harness'
import { type EntryLine, isEntry, readSession, type SessionLog, type SessionView } from '@reve/session-log'
import { basename, dirname, join } from 'node:path'
import { type Spoken, spokenIn } from '../log-text.ts'
import { hasAttribute, quoted } from '../quoted.ts'
import type { Answer, InboxMessage } from './channel.ts'

/** Where messages go to be answered. What is stopped by `signal` gives undefined: the next process goes on with it. */
export type Conversation = {
  /** Its name; kept with a message before it is delivered. */
  readonly id: string
  /** Whether a conversation of that name has the message: this one (`here`), or one that was left. */
  readonly find: (messageId: string, conversationId: string) => Promise<'absent' | 'here' | 'elsewhere'>
  /** Delivers a message that is in no conversation, and waits for what comes of it. */
  readonly deliver: (message: InboxMessage, signal: AbortSignal) => Promise<Answer | undefined>
  /** The answer to a message that is `here`: the one that there is, or the one that comes of going on. */
  readonly follow: (messageId: string, signal: AbortSignal) => Promise<Answer | undefined>
}

const ELEMENT = 'message'
const BUSY_MS = 250

/** What a model sees of a message: whose it is and where it came in, and then a text that cannot end before its end. */
export function messagePrompt({ id, channel, from, receivedAt, text }: InboxMessage): string {
  const received = new Date(receivedAt).toISOString()
  return quoted(ELEMENT, { channel, ...(from !== undefined && { from }), received, id }, text)
}

/**
 * A session as the place where messages are answered: each is a run of its own on `lane` (default `main`), one after the other, and in
 * between what others do there. The session has been recovered before.
 *
 * @param parts.after as of the channels' options.
 */
export function sessionConversation(
  { harness, log }: { readonly harness: Harness; readonly log: SessionLog },
  parts: { readonly after: (ms: number, signal: AbortSignal) => Promise<void>; readonly lane?: string },
): Conversation {
  const { after, lane = 'main' } = parts
  const id = basename(log.file)

  /** Runs as soon as the lane is free. Undefined at the abort. */
  const whenFree = async (run: () => Promise<RunResult>, signal: AbortSignal): Promise<RunResult | undefined> => {
    while (!signal.aborted) {
      try {
        return await run()
      } catch (error) {
        if (!isReveError(error) || !busy.has(error.code)) throw error
        await after(BUSY_MS, signal)
      }
    }
    return undefined
  }

  const goOn = async (signal: AbortSignal): Promise<Answer | 'nothing' | undefined> => {
    try {
      return answerOf(await whenFree(() => harness.continue({ lane, signal }), signal), signal)
    } catch (error) {
      if (isReveError(error) && error.code === 'nothing_to_continue') return 'nothing'
      throw error
    }
  }

  return {
    id,
    find: async (messageId, conversationId) => {
      if (conversationId === id) return entryOf(log, messageId) === undefined ? 'absent' : 'here'
      return otherHas(log.file, conversationId, messageId)
    },
    deliver: async (message, signal) => {
      const prompt = messagePrompt(message)
      return answerOf(await whenFree(() => harness.prompt(prompt, { lane, signal }), signal), signal)
    },
    follow: async (messageId, signal) => {
      const since = sinceEntry(log, lane, entryOf(log, messageId))
      if (since === undefined)
        return { ok: false, text: 'The conversation went on from an earlier point, without this message.' }
      const next = since.findIndex(({ role }) => role === 'user')
      if (next < 0) {
        const answer = await goOn(signal)
        if (answer !== 'nothing') return answer
      }
      const until = next < 0 ? since.length : next
      const said = since.slice(0, until).findLast(({ role, text }) => role === 'assistant' && text !== '')
      return said === undefined
        ? { ok: false, text: 'The work on this was interrupted.' }
        : { ok: true, text: wholeOrCut(said.text, said.cut) }
    },
  }
}

/** Somebody else is at work on the lane; nothing was written. */
const busy: ReadonlySet<string> = new Set(['lane_busy', 'needs_recovery'])

/** Whoever asked is outside: they are told that there is no answer, and not what a provider says of its keys. */
function answerOf(result: RunResult | undefined, signal: AbortSignal): Answer | undefined {
  if (result === undefined) return undefined
  const { outcome, text, reason } = result
  switch (outcome) {
    case 'completed':
      return { ok: true, text: wholeOrCut(text, reason === 'length') }
    case 'aborted':
      // Our own end: the next process goes on with it.
      return signal.aborted ? undefined : { ok: false, text: 'The work on this was stopped.' }
    case 'failed':
      return { ok: false, text: `There is no answer to this (${reason ?? 'failed'}).` }
    case 'rejected':
      return { ok: false, text: 'This was not taken up.' }
    default:
      return outcome satisfies never
  }
}

/** Whoever reads an answer that was cut off must not take it for all that there is to say. */
const wholeOrCut = (text: string, cut: boolean): string =>
  cut ? `${text}\n\n(The answer was cut off here.)`.trimStart() : text

function entryOf(view: SessionView, id: string): string | undefined {
  const line = view.lines.findLast((candidate) => {
    if (!isEntry(candidate)) return false
    const spoken = spokenIn(candidate['message'])
    return spoken?.role === 'user' && hasAttribute(spoken.text, ELEMENT, 'id', id)
  })
  return line?.id
}

/** What was said on the lane after an entry; undefined when the entry is not on its path. */
function sinceEntry(log: SessionLog, lane: string, entryId: string | undefined): readonly Spoken[] | undefined {
  const path: readonly EntryLine[] = log.path(log.leaf(lane))
  const at = path.findIndex(({ id }) => id === entryId)
  return at < 0 ? undefined : path.slice(at + 1).flatMap((entry) => spokenIn(entry['message']) ?? [])
}

/** Looks in another session beside this one. Of one that cannot be read nobody knows: the message is not said a second time. */
async function otherHas(file: string, name: string, messageId: string): Promise<'absent' | 'elsewhere'> {
  try {
    const view = await readSession(join(dirname(file), basename(name)))
    return entryOf(view, messageId) === undefined ? 'absent' : 'elsewhere'
  } catch (error) {
    if (!isReveError(error)) throw error
    return error.code === 'not_found' ? 'absent' : 'elsewhere'
  }
}
