import type { ChannelState } from './state.ts'

/** What somebody says to the agent over a channel. It is data: nothing in it is ever run as a command. */
export type IncomingMessage = {
  readonly text: string
  /** Who says it, as the channel knows them; shown to the model. */
  readonly from?: string
  /** The channel's own name for this message: the same key is the same message, however often it is given. */
  readonly key?: string
}

/** A message that was taken in. */
export type InboxMessage = {
  /** Unique over all channels. */
  readonly id: string
  /** Rises from message to message, in the order in which they came in. */
  readonly seq: number
  readonly channel: string
  readonly text: string
  readonly from: string | undefined
  readonly key: string | undefined
  /** Milliseconds since 1970. */
  readonly receivedAt: number
}

/** How it stands with a message. */
export type MessageStatus =
  /** Waits for its turn. */
  | { readonly state: 'waiting' }
  /** Is part of a conversation, or about to be; there is no answer yet. */
  | { readonly state: 'taken' }
  /** There is an answer; `replied` once the channel has taken it. */
  | { readonly state: 'answered'; readonly answer: Answer; readonly replied: boolean }

/** What came of a message. `ok` is false when there is no answer, and `text` says so in words for whoever asked. */
export type Answer = { readonly ok: boolean; readonly text: string }

/** What came of giving a message in. `new` is false for one whose key was there before. */
export type Receipt = { readonly id: string; readonly seq: number; readonly new: boolean }

/** What a channel has of the agent. */
export type ChannelInbox = {
  /**
   * Takes a message in: once this returns, no crash loses it, and it is delivered once. `also` is done in the same transaction: both
   * happen, or neither does (where a channel keeps how far it has read elsewhere).
   *
   * @throws ChannelError `inbox_full`, `too_large`, `invalid_message`, `key_reused`; nothing was taken in then.
   */
  readonly receive: (message: IncomingMessage, also?: (state: ChannelState) => void) => Receipt
  /** Where a message of this channel stands; undefined for an id that it does not have. */
  readonly find: (id: string) => MessageStatus | undefined
  /** What the channel keeps for itself; no other channel sees it. */
  readonly state: ChannelState
}

/** A way in which others reach the agent. */
export type Channel = {
  /** 1 to 64 of a-z, 0-9, _ and -, a letter first. */
  readonly name: string
  /**
   * Listens until `signal` aborts, then resolves. When it rejects, or resolves before, it is started again after a while.
   */
  readonly start: (inbox: ChannelInbox, signal: AbortSignal) => Promise<void>
  /**
   * Brings an answer to whoever asked. Tried again when it rejects, and once more after a crash in its midst: `message.id` tells an
   * answer that was brought already.
   */
  readonly reply: (message: InboxMessage, answer: Answer, signal: AbortSignal) => Promise<void>
}
