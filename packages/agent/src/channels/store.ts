import type { Answer, ChannelInbox, InboxMessage, IncomingMessage, MessageStatus, Receipt } from './channel.ts'
import { type ChannelDatabase, openDatabase } from './database.ts'
import { ChannelError } from './errors.ts'
import type { ChannelState, StateValue } from './state.ts'

/** Bounds of what channels may bring in. */
export type InboxLimits = {
  /** Messages of one channel that may wait for their answer; default 1000. */
  readonly waiting: number
  /** Characters of a message; default 100 000. */
  readonly characters: number
}

/** A message whose turn it is. `target` is the conversation that it was about to go to when a process died. */
export type NextMessage = InboxMessage & { readonly target: string | undefined }

/** The inbox of an agent, and what its channels keep. */
export type ChannelStore = {
  readonly inboxOf: (channel: string) => ChannelInbox
  /** The oldest message without an answer. */
  readonly next: () => NextMessage | undefined
  /** Kept before a message goes into a conversation, so that after a crash it is known where to look for it. */
  readonly take: (id: string, target: string) => void
  /** The first answer counts. */
  readonly answer: (id: string, answer: Answer) => void
  /** The oldest answer that a channel has not taken yet. */
  readonly unreplied: (channel: string) => { readonly message: InboxMessage; readonly answer: Answer } | undefined
  readonly replied: (id: string) => void
  readonly close: () => void
}

const defaults: InboxLimits = { waiting: 1000, characters: 100_000 }
const NAME_CHARACTERS = 256
const VALUE_CHARACTERS = 1 << 20
const MOST_VALUES = 10_000
/** How long a message that is done with is kept, so that its key is known when it comes again. */
const KEPT_MS = 30 * 24 * 3600_000

type Row = {
  readonly seq: number
  readonly id: string
  readonly channel: string
  readonly key: string | null
  readonly sender: string | null
  readonly text: string
  readonly received_at: number
  readonly state: 'waiting' | 'taken' | 'answered' | 'replied'
  readonly target: string | null
  readonly ok: number | null
  readonly answer: string | null
}

/**
 * Opens the inbox (`.reve/channels.db`), or makes it. Each change is durable when its call returns.
 *
 * @throws ChannelError `foreign_file`, `io`; so does every call whose file cannot be written.
 */
export function openChannelStore(
  file: string,
  options: { readonly now: () => number; readonly newId: () => string; readonly limits?: Partial<InboxLimits> },
): ChannelStore {
  const { now, newId } = options
  const limits = { ...defaults, ...options.limits }
  const database = openDatabase(file)
  const { prepare, transaction, close } = database
  transaction(() => prepare("DELETE FROM message WHERE state = 'replied' AND received_at < ?").run(now() - KEPT_MS))

  const receive = (channel: string, incoming: IncomingMessage, also?: () => void): Receipt => {
    const { text, key, from } = checked(incoming, limits.characters)
    return transaction(() => {
      const before =
        key === null ? undefined : prepare<Row>('SELECT * FROM message WHERE channel = ? AND key = ?').get(channel, key)
      if (before !== undefined && (before.text !== text || before.sender !== from))
        throw new ChannelError('key_reused', `the key ${JSON.stringify(key)} was given to another message before`)
      if (before === undefined) {
        const sql = "SELECT count(*) AS waiting FROM message WHERE channel = ? AND state IN ('waiting', 'taken')"
        const waiting = prepare<{ readonly waiting: number }>(sql).get(channel)?.waiting ?? 0
        if (waiting >= limits.waiting)
          throw new ChannelError('inbox_full', `${waiting} messages of "${channel}" wait already; try again later`)
      }
      also?.()
      if (before !== undefined) return { id: before.id, seq: before.seq, new: false }
      const id = newId()
      const { lastInsertRowid } = prepare(
        'INSERT INTO message (id, channel, key, sender, text, received_at) VALUES (?, ?, ?, ?, ?, ?)',
      ).run(id, channel, key, from, text, now())
      return { id, seq: Number(lastInsertRowid), new: true }
    })
  }

  const inboxOf = (channel: string): ChannelInbox => {
    const state = stateOf(database, channel)
    return {
      state,
      receive: (incoming, also) => receive(channel, incoming, also && (() => also(state))),
      find: (id) => {
        const row = prepare<Row>('SELECT * FROM message WHERE id = ? AND channel = ?').get(id, channel)
        return row === undefined ? undefined : statusOf(row)
      },
    }
  }

  return {
    inboxOf,
    next: () => {
      const sql = "SELECT * FROM message WHERE state IN ('waiting', 'taken') ORDER BY seq LIMIT 1"
      const row = prepare<Row>(sql).get()
      return row === undefined ? undefined : { ...messageOf(row), target: row.target ?? undefined }
    },
    take: (id, target) =>
      void transaction(() =>
        prepare("UPDATE message SET state = 'taken', target = ? WHERE id = ? AND state IN ('waiting', 'taken')").run(
          target,
          id,
        ),
      ),
    answer: (id, { ok, text }) =>
      void transaction(() =>
        prepare(
          "UPDATE message SET state = 'answered', ok = ?, answer = ? WHERE id = ? AND state IN ('waiting', 'taken')",
        ).run(ok ? 1 : 0, text.toWellFormed(), id),
      ),
    unreplied: (channel) => {
      const sql = "SELECT * FROM message WHERE channel = ? AND state = 'answered' ORDER BY seq LIMIT 1"
      const row = prepare<Row>(sql).get(channel)
      return row === undefined ? undefined : { message: messageOf(row), answer: answerOf(row) }
    },
    replied: (id) =>
      void transaction(() =>
        prepare("UPDATE message SET state = 'replied' WHERE id = ? AND state = 'answered'").run(id),
      ),
    close,
  }
}

const messageOf = (row: Row): InboxMessage => ({
  id: row.id,
  seq: row.seq,
  channel: row.channel,
  text: row.text,
  from: row.sender ?? undefined,
  key: row.key ?? undefined,
  receivedAt: row.received_at,
})

const answerOf = ({ ok, answer }: Row): Answer => ({ ok: ok === 1, text: answer ?? '' })

function statusOf(row: Row): MessageStatus {
  switch (row.state) {
    case 'waiting':
    case 'taken':
      return { state: row.state }
    case 'answered':
    case 'replied':
      return { state: 'answered', answer: answerOf(row), replied: row.state === 'replied' }
    default:
      return row.state satisfies never
  }
}

function checked(
  { text, key, from }: IncomingMessage,
  characters: number,
): { readonly text: string; readonly key: string | null; readonly from: string | null } {
  if (text.length > characters)
    throw new ChannelError(
      'too_large',
      `the message has ${text.length} characters, and ${characters} at most are taken`,
    )
  if (text.trim() === '') throw new ChannelError('invalid_message', 'the message is empty')
  for (const [what, value] of [
    ['key', key],
    ['sender', from],
  ] as const) {
    if (value !== undefined && (value === '' || value.length > NAME_CHARACTERS || !value.isWellFormed()))
      throw new ChannelError('invalid_message', `the ${what} of a message takes 1 to ${NAME_CHARACTERS} characters`)
  }
  return { text: text.toWellFormed(), key: key ?? null, from: from ?? null }
}

function stateOf({ prepare, transaction }: ChannelDatabase, channel: string): ChannelState {
  const get = (key: string): StateValue | undefined => {
    const sql = 'SELECT value FROM value WHERE channel = ? AND key = ?'
    const row = prepare<{ readonly value: string }>(sql).get(channel, key)
    return row === undefined ? undefined : (JSON.parse(row.value) as StateValue)
  }
  const set = (key: string, value: StateValue | undefined): void => {
    if (value === undefined) {
      transaction(() => prepare('DELETE FROM value WHERE channel = ? AND key = ?').run(channel, key))
      return
    }
    if (key === '' || key.length > NAME_CHARACTERS || !key.isWellFormed())
      throw new ChannelError('invalid_value', `a key takes 1 to ${NAME_CHARACTERS} characters`)
    const text = textOf(value)
    if (text.length > VALUE_CHARACTERS)
      throw new ChannelError(
        'too_large',
        `the value of ${JSON.stringify(key)} has more than ${VALUE_CHARACTERS} characters`,
      )
    transaction(() => {
      prepare('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT (channel, key) DO UPDATE SET value = excluded.value').run(
        channel,
        key,
        text,
      )
      const count = prepare<{ readonly count: number }>('SELECT count(*) AS count FROM value WHERE channel = ?').get(
        channel,
      )
      if ((count?.count ?? 0) > MOST_VALUES)
        throw new ChannelError('too_large', `"${channel}" keeps ${MOST_VALUES} values already; take some out first`)
    })
  }
  return {
    get,
    set,
    update: (key, change) =>
      transaction(() => {
        const value = change(get(key))
        set(key, value)
        return value
      }),
    keys: () =>
      prepare<{ readonly key: string }>('SELECT key FROM value WHERE channel = ? ORDER BY key')
        .all(channel)
        .map(({ key }) => key),
  }
}

/** As JSON, if that says the same: NaN, a function or a circle do not. */
function textOf(value: StateValue): string {
  let text: string | undefined
  try {
    text = JSON.stringify(value, (_key, part: unknown) => {
      if (typeof part === 'number' && !Number.isFinite(part)) throw new TypeError('a number that JSON does not have')
      return typeof part === 'string' ? part.toWellFormed() : part
    })
  } catch (cause) {
    if (cause instanceof TypeError)
      throw new ChannelError('invalid_value', `the value is no JSON: ${cause.message}`, { cause })
    throw cause
  }
  if (text === undefined) throw new ChannelError('invalid_value', 'the value is no JSON')
  return text
}
