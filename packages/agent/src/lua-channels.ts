import type { ChannelDeclaration, HostFunction, LuaHostCalls, LuaRuntime, LuaValue } from '@reve/lua-runtime'
import * as v from 'valibot'
import type { Channel, InboxMessage } from './channels/channel.ts'
import { type ChannelHost, codeChannel } from './channels/scripted.ts'
import type { StateValue } from './channels/state.ts'
import { jsonOf, parsed } from './lua-host.ts'

/** One look, and one answer, may take so long. */
const CALL_MS = 10 * 60_000

const StateTable = v.custom<Readonly<Record<string, StateValue>>>(
  (given) => typeof given === 'object' && given !== null && !Array.isArray(given),
  'must be a table of values by their keys',
)
const Received = v.strictObject(
  {
    text: v.string('must be a string'),
    from: v.exactOptional(v.string('must be a string')),
    key: v.exactOptional(v.string('must be a string')),
    keep: v.exactOptional(StateTable),
  },
  (issue) =>
    issue.expected === 'never'
      ? 'is none of text, from, key, keep'
      : issue.path === undefined
        ? 'takes a table like { text = "…", from = "…", key = "…", keep = { cursor = 5 } }'
        : 'is missing',
)
const Key = v.pipe(v.string('takes a key'), v.nonEmpty('takes a key'))

/**
 * The channels of `channels/*.lua`.
 *
 * @param lua a state of their own: while one waits for its server, no tool has to.
 */
export function luaChannels(
  declared: readonly ChannelDeclaration[],
  lua: () => Promise<LuaRuntime>,
  host: (channel: string) => LuaHostCalls,
  effects: Parameters<typeof codeChannel>[1],
): readonly Channel[] {
  return declared.map(({ name, everyMs, canReply }) => {
    const call = async (
      type: 'poll' | 'reply',
      args: LuaValue,
      own: ChannelHost,
      signal: AbortSignal,
    ): Promise<void> => {
      const reached = host(name)
      const functions = { ...reached.functions, ...channelFunctions(own) }
      const runtime = await lua()
      await runtime.run({ type, channel: name }, args, { ...reached, functions }, { signal, wallMs: CALL_MS })
    }
    return codeChannel(
      {
        name,
        everyMs,
        poll: (own, signal) => call('poll', null, own, signal),
        ...(canReply && {
          reply: async (message, answer, own, signal) =>
            call('reply', { ok: answer.ok, text: answer.text, to: plain(message) }, own, signal),
        }),
      },
      effects,
    )
  })
}

const plain = ({ id, text, from, key, receivedAt }: InboxMessage): LuaValue => ({
  id,
  text,
  received_at: receivedAt / 1000,
  ...(from !== undefined && { from }),
  ...(key !== undefined && { key }),
})

/** `ctx.receive`, and what the channel keeps: `ctx.get`, `ctx.set`, `ctx.keys`. */
function channelFunctions({ receive, state }: ChannelHost): Readonly<Record<string, HostFunction>> {
  return {
    receive: async ([given]) => {
      const { keep, ...message } = parsed(Received, given === undefined ? given : jsonOf(given))
      const { id, seq, new: isNew } = receive(message, keep)
      return { id, seq, new: isNew }
    },
    get: async ([key]) => state.get(parsed(Key, key)) ?? undefined,
    set: async ([key, value]) => {
      state.set(parsed(Key, key), value === undefined || value === null ? undefined : jsonOf(value))
      return undefined
    },
    keys: async () => state.keys(),
  }
}
