import * as v from 'valibot'
import type { ServiceEffects } from '../effects.ts'
import type { Channel } from './channel.ts'
import { ChannelError } from './errors.ts'
import { fileDropChannel } from './file-drop.ts'
import { httpChannel } from './http.ts'

/** `channels` of `agent {}`: those that come with the agent. Off unless they are named. */
export const ChannelsTable = v.strictObject(
  {
    drop: v.optional(v.boolean('must be true or false'), false),
    http: v.optional(
      v.strictObject(
        {
          port: v.pipe(
            v.number('must be a number'),
            v.integer('must be a whole number'),
            v.minValue(1, 'takes 1 to 65535'),
            v.maxValue(65_535, 'takes 1 to 65535'),
          ),
          token: v.pipe(
            v.string('must name an environment variable, such as "$REVE_TOKEN"'),
            v.regex(
              /^\$[A-Za-z_][A-Za-z0-9_]*$/,
              'must name an environment variable, such as "$REVE_TOKEN"; a token itself does not belong here',
            ),
          ),
        },
        'must be a table like { port = 7411, token = "$REVE_TOKEN" }',
      ),
    ),
  },
  'must be a table with `drop`, `http` or both',
)

/** Keys of the tables of `channels`, by their path below it. */
export const channelKeys: Readonly<Record<string, readonly string[]>> = {
  '': ['drop', 'http'],
  http: ['port', 'token'],
}

/** What the agent's configuration says of its channels; undefined: nothing. */
export type ChannelsSetting = v.InferOutput<typeof ChannelsTable> | undefined

/** The names of the channels that a configuration names. */
export const channelNames = (setting: ChannelsSetting): readonly string[] => [
  ...(setting?.drop === true ? ['drop'] : []),
  ...(setting?.http === undefined ? [] : ['http']),
]

/** The tokens of the channels that are set: values that must stand in no file, event or message. */
export function channelSecrets(setting: ChannelsSetting, env: (name: string) => string | undefined): readonly string[] {
  const token = setting?.http === undefined ? undefined : env(setting.http.token.slice(1))
  return token === undefined ? [] : [token]
}

/**
 * The channels that an agent's configuration names.
 *
 * @throws ChannelError `bad_channel` when the variable of a token is not set, or holds too little.
 */
export function configuredChannels(
  setting: ChannelsSetting,
  parts: {
    readonly root: string
    readonly env: (name: string) => string | undefined
    readonly effects: ServiceEffects
    /** Called with the port of the HTTP channel each time that it listens. */
    readonly onListening?: (port: number) => void
  },
): readonly Channel[] {
  const { root, env, effects, onListening } = parts
  const { after, newId } = effects
  const channels: Channel[] = []
  if (setting?.drop === true) channels.push(fileDropChannel({ root, newId: () => newId('f_'), after }))
  if (setting?.http !== undefined) {
    const { port, token } = setting.http
    const value = env(token.slice(1)) ?? ''
    if (value === '')
      throw new ChannelError('bad_channel', `the channel "http" takes its token from ${token}, which is not set`)
    channels.push(httpChannel({ port, token: value, after, ...(onListening && { onListening }) }))
  }
  return channels
}
