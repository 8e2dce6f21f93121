import { type Lock, LockHeldError, messageOf as reasonOf, tryAcquireLock } from '@reve/base'
import { type Bell, createBell } from './bell.ts'
import type { Answer, Channel, ChannelInbox, InboxMessage } from './channel.ts'
import type { Conversation } from './conversation.ts'
import { ChannelError } from './errors.ts'
import { type ChannelStore, type InboxLimits, type NextMessage, openChannelStore } from './store.ts'

/** What goes on with the channels. Texts come from outside: sanitise them before a terminal. */
export type ChannelEvent =
  | {
      readonly type: 'received'
      readonly channel: string
      readonly id: string
      readonly from: string | undefined
      readonly text: string
    }
  | { readonly type: 'answered'; readonly message: InboxMessage; readonly answer: Answer }
  | { readonly type: 'replied'; readonly message: InboxMessage }
  /** Something has to be mended; it is tried again. Told once. */
  | { readonly type: 'problem'; readonly channel: string | undefined; readonly message: string }

/** What the channels of an agent need. */
export type ChannelsOptions = {
  /** What is kept: `.reve/channels.db`; a lock is made beside it. */
  readonly file: string
  readonly channels: readonly Channel[]
  readonly conversation: Conversation
  readonly onEvent?: (event: ChannelEvent) => void
  readonly limits?: Partial<InboxLimits>
  /** A new id. */
  readonly newId: () => string
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** Resolves after `ms` milliseconds or at the abort, whichever comes first; does not reject. */
  readonly after: (ms: number, signal: AbortSignal) => Promise<void>
}

/** The channels of an agent, running. */
export interface Channels extends AsyncDisposable {
  /** Stops listening and the run that goes on, and waits for both; what is not done is done by the next process. */
  close(): Promise<void>
}

const FIRST_WAIT_MS = 1000
const LONGEST_WAIT_MS = 60_000
/** For so long an answer is offered to a channel that does not take it. */
const REPLY_MS = 24 * 3600_000

/**
 * Opens the inbox and starts the channels: messages are answered one at a time, in the order in which they came in.
 *
 * @throws ChannelError `locked`, `foreign_file`, `bad_channel`, `io`.
 */
export function startChannels(options: ChannelsOptions): Channels {
  const names = options.channels.map(({ name }) => name)
  for (const [index, name] of names.entries()) {
    if (!/^[a-z][a-z0-9_-]{0,63}$/.test(name))
      throw new ChannelError(
        'bad_channel',
        `${JSON.stringify(name)}: a channel's name takes 1 to 64 of a-z, 0-9, _ and -, a letter first`,
      )
    if (names.indexOf(name) !== index) throw new ChannelError('bad_channel', `there are two channels "${name}"`)
  }
  const store = openChannelStore(options.file, options)
  let lock: Lock
  try {
    lock = tryAcquireLock(`${options.file}.lock`)
  } catch (error) {
    store.close()
    if (!(error instanceof LockHeldError)) throw error
    throw new ChannelError('locked', `the channels of this agent are open in process ${error.pid ?? '(unknown)'}`, {
      cause: error,
    })
  }
  const stop = new AbortController()
  const over = new Runner(options, store).go(stop.signal).finally(() => {
    store.close()
    lock.release()
  })
  const close = async (): Promise<void> => {
    stop.abort()
    await over
  }
  return { close, [Symbol.asyncDispose]: close }
}

class Runner {
  readonly #options: ChannelsOptions
  readonly #store: ChannelStore
  /** A message came in. */
  readonly #incoming = createBell()
  /** An answer is there, by channel. */
  readonly #answers: ReadonlyMap<string, Bell>

  constructor(options: ChannelsOptions, store: ChannelStore) {
    this.#options = options
    this.#store = store
    this.#answers = new Map(options.channels.map(({ name }) => [name, createBell()]))
  }

  async go(signal: AbortSignal): Promise<void> {
    await Promise.all([
      this.#deliver(signal),
      ...this.#options.channels.flatMap((channel) => [this.#listen(channel, signal), this.#reply(channel, signal)]),
    ])
  }

  /** Works until the abort; what goes wrong is told once, and tried again after a while that grows. */
  async #keepOn(
    channel: string | undefined,
    signal: AbortSignal,
    work: (succeeded: () => void) => Promise<void>,
  ): Promise<void> {
    let wait = FIRST_WAIT_MS
    let told: string | undefined
    const succeeded = (): void => {
      wait = FIRST_WAIT_MS
      told = undefined
    }
    while (!signal.aborted) {
      try {
        await work(succeeded)
      } catch (error) {
        if (signal.aborted) return
        const message = reasonOf(error)
        if (message !== told) this.#options.onEvent?.({ type: 'problem', channel, message })
        told = message
        await this.#options.after(wait, signal)
        wait = Math.min(wait * 2, LONGEST_WAIT_MS)
      }
    }
  }

  #deliver(signal: AbortSignal): Promise<void> {
    return this.#keepOn(undefined, signal, async (succeeded) => {
      const message = this.#store.next()
      if (message === undefined) return this.#incoming.next(signal)
      const answer = await this.#answer(message, signal)
      if (answer === undefined) return undefined
      this.#store.answer(message.id, answer)
      this.#options.onEvent?.({ type: 'answered', message, answer })
      this.#answers.get(message.channel)?.ring()
      return succeeded()
    })
  }

  async #answer({ target, ...message }: NextMessage, signal: AbortSignal): Promise<Answer | undefined> {
    const { conversation } = this.#options
    if (target !== undefined) {
      const found = await conversation.find(message.id, target)
      if (found === 'here') return conversation.follow(message.id, signal)
      if (found === 'elsewhere') return { ok: false, text: 'The conversation that had this message was left.' }
    }
    // Where it goes, before it goes there: after a crash it is looked for at that place.
    this.#store.take(message.id, conversation.id)
    return conversation.deliver(message, signal)
  }

  #listen(channel: Channel, signal: AbortSignal): Promise<void> {
    const own = this.#store.inboxOf(channel.name)
    const inbox: ChannelInbox = {
      ...own,
      receive: (incoming, also) => {
        const receipt = own.receive(incoming, also)
        if (receipt.new) {
          this.#incoming.ring()
          const { from, text } = incoming
          this.#options.onEvent?.({ type: 'received', channel: channel.name, id: receipt.id, from, text })
        }
        return receipt
      },
    }
    return this.#keepOn(channel.name, signal, async () => {
      await channel.start(inbox, signal)
      if (!signal.aborted) throw new ChannelError('bad_channel', `"${channel.name}" stopped listening by itself`)
    })
  }

  #reply(channel: Channel, signal: AbortSignal): Promise<void> {
    const { now, onEvent } = this.#options
    const bell = this.#answers.get(channel.name) ?? createBell()
    /** Since when this answer is refused. */
    let refused: { readonly id: string; readonly since: number } | undefined
    return this.#keepOn(channel.name, signal, async (succeeded) => {
      const found = this.#store.unreplied(channel.name)
      if (found === undefined) return bell.next(signal)
      const { message, answer } = found
      try {
        await channel.reply(message, answer, signal)
      } catch (error) {
        if (refused?.id !== message.id) refused = { id: message.id, since: now() }
        if (now() - refused.since < REPLY_MS) throw error
        this.#store.replied(message.id)
        throw new ChannelError('bad_channel', `the answer to ${message.id} is given up: ${reasonOf(error)}`, {
          cause: error,
        })
      }
      this.#store.replied(message.id)
      onEvent?.({ type: 'replied', message })
      return succeeded()
    })
  }
}
