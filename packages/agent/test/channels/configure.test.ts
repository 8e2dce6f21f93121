import * as v from 'valibot'
import { expect, test } from 'vitest'
import { channelNames, channelSecrets, ChannelsTable, configuredChannels } from '../../src/channels/configure.ts'
import { serviceEffects } from '../../src/effects.ts'

const problemsOf = (table: unknown): readonly (readonly [string | null, string])[] =>
  (v.safeParse(ChannelsTable, table).issues ?? []).map((issue) => [v.getDotPath(issue), issue.message])

test('channels are those that are named; a token is never written down', () => {
  const parts = {
    root: '/nowhere',
    env: (name: string) => (name === 'T' ? 'a-token-of-some-length' : undefined),
    effects: serviceEffects(),
  }
  const named = (table: unknown): readonly string[] => {
    const setting = v.parse(ChannelsTable, table)
    const names = configuredChannels(setting, parts).map(({ name }) => name)
    expect(channelNames(setting)).toEqual(names)
    expect(channelSecrets(setting, parts.env)).toEqual(names.includes('http') ? ['a-token-of-some-length'] : [])
    return names
  }
  expect([named({}), named({ drop: true }), named({ drop: true, http: { port: 1, token: '$T' } })]).toEqual([
    [],
    ['drop'],
    ['drop', 'http'],
  ])
  expect(() => named({ http: { port: 1, token: '$NONE' } })).toThrow('takes its token from $NONE, which is not set')
  expect(problemsOf({ http: { port: 0, token: 'secret' }, drip: true }).map(([path]) => path)).toEqual([
    'http.port',
    'http.token',
    'drip',
  ])
  expect(JSON.stringify(problemsOf({ http: { port: 1, token: 'sk-123' } }))).not.toContain('sk-123')
  expect(problemsOf('http')[0]).toEqual([null, 'must be a table with `drop`, `http` or both'])
})

test('ids rise, timers end at once when they are stopped', async () => {
  const { newId, after } = serviceEffects(() => 7)
  const ids = Array.from({ length: 1000 }, () => newId('m_'))
  expect(ids.toSorted()).toEqual(ids)
  const stop = new AbortController()
  const waiting = [after(1e9, stop.signal), after(1e12, stop.signal)]
  stop.abort()
  await Promise.all([...waiting, after(1e9, stop.signal), after(1, new AbortController().signal)])
})
