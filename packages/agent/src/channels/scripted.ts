import type { Answer, Channel, ChannelInbox, IncomingMessage, InboxMessage, Receipt } from './channel.ts'
import type { ChannelState, StateValue } from './state.ts'

/** What the code of a channel has of the agent. */
export type ChannelHost = {
  /** Takes a message in; the values of `keep` go into the state with it, in one transaction. */
  readonly receive: (message: IncomingMessage, keep?: Readonly<Record<string, StateValue>>) => Receipt
  readonly state: ChannelState
}

/** The code of a channel, of `channels/*.lua`: it looks for messages now and then, and brings answers back. */
export type ChannelCode = {
  readonly name: string
  /** Milliseconds between two looks. */
  readonly everyMs: number
  /** Looks for new messages. */
  readonly poll: (host: ChannelHost, signal: AbortSignal) => Promise<void>
  /** As of {@link Channel}; a channel without it only listens. */
  readonly reply?: (message: InboxMessage, answer: Answer, host: ChannelHost, signal: AbortSignal) => Promise<void>
}

/** A channel from its code. */
export function codeChannel(
  code: ChannelCode,
  { after }: { readonly after: (ms: number, signal: AbortSignal) => Promise<void> },
): Channel {
  const begun = Promise.withResolvers<ChannelInbox>()
  const hostOf = ({ receive, state }: ChannelInbox): ChannelHost => ({
    receive: (message, keep = {}) =>
      receive(message, (own) => {
        for (const [key, value] of Object.entries(keep)) own.set(key, value)
      }),
    state,
  })
  return {
    name: code.name,
    start: async (own, signal) => {
      begun.resolve(own)
      while (!signal.aborted) {
        await code.poll(hostOf(own), signal)
        await after(code.everyMs, signal)
      }
    },
    reply: async (message, answer, signal) => {
      // An answer of an earlier process may be there a moment before this one listens.
      await code.reply?.(message, answer, hostOf(await begun.promise), signal)
    },
  }
}
