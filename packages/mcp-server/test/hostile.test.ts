import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect, serve, treeIn, type Served } from './support.ts'

let served: Served
const errors: string[] = []
beforeAll(async () => {
  served = await serve({ onError: (message) => errors.push(message) })
})
afterAll(async () => {
  await served[Symbol.asyncDispose]()
})

/** Sends a call whose arguments are this JSON, whatever a client library would make of it. */
async function send(family: string, json: string): Promise<string> {
  const response = await fetch(served.url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      authorization: `Bearer ${served.token}`,
    },
    body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(family)},"arguments":${json}}}`,
  })
  expect(response.status).toBe(200)
  return response.text()
}

const many = 500_000
const deep = (open: string, close: string): string => open.repeat(100_000) + close.repeat(100_000)
const tree = 'TREE'

test.each([
  ['a field of every object', 'fs', '{"action":"empty","toString":1}', 'takes no field'],
  ['a deep list', 'fs', `{"action":"list","tree":"x","path":${deep('[', ']')}}`, 'must be a string'],
  [
    'a deep object',
    'fs',
    `{"action":"list","tree":"x","path":${deep('{"a":', '}').replace('}', '1}')}}`,
    'must be a string',
  ],
  ['a deep action', 'fs', `{"action":${deep('[', ']')}}`, 'needs \\"action\\"'],
  [
    'a long list of the wrong kind',
    'exec',
    `{"action":"run","tree":"x","argv":[${'1,'.repeat(many)}1]}`,
    'list of strings',
  ],
  [
    'many caches',
    'exec',
    `{"action":"run","tree":"x","argv":["x"],"caches":[${'1,'.repeat(many)}1]}`,
    'at most 32 caches',
  ],
  [
    'caches of the wrong kind',
    'exec',
    '{"action":"run","tree":"x","argv":["x"],"caches":[1]}',
    'must be {name, path, mode?}',
  ],
  ['a long field', 'fs', `{"action":"empty","${'x'.repeat(many)}":1}`, 'takes no field'],
  ['a long verb', 'fs', `{"action":"${'x'.repeat(many)}"}`, 'has no action'],
  ['a long path', 'fs', `{"action":"list","tree":"x","path":"${'a.'.repeat(many)}"}`, ''],
  ['a long address', 'git', `{"action":"import","name":"x","src":"${'://@'.repeat(many)}"}`, ''],
  ['a long family', 'x'.repeat(many), '{}', 'there is no family'],
  [
    'half a surrogate pair',
    'ref',
    `{"action":"create","tree":"${tree}","name":"x","note":"\\ud800"}`,
    'half of a surrogate pair',
  ],
  ['a NUL in a command', 'exec', `{"action":"run","tree":"${tree}","argv":["a\\u0000b"]}`, 'NUL'],
  ['a NUL in an address', 'git', '{"action":"import","src":"/tmp/a\\u0000b","name":"x"}', 'control character'],
  ['a huge window', 'computer', '{"action":"metrics","window_s":1e300}', 'at most 1000000000'],
  ['a huge limit', 'ref', '{"action":"history","name":"x","limit":1e300}', 'from 1 to 10000'],
  ['a huge offset', 'fs', '{"action":"read","tree":"x","path":"x","offset":1e300}', 'whole number from 1'],
  ['a long text of a seat', 'seat', `{"action":"update","identity":"${'x'.repeat(many)}"}`, 'at most 16,000'],
  [
    'what is not base64',
    'fs',
    `{"action":"write","tree":"${tree}","path":"b","content":"no base64!","encoding":"base64"}`,
    'must be base64',
  ],
])('%s is refused in few words, and is an event', async (_, family, json, reason) => {
  const before = served.computer.events.newest(1)[0]?.id ?? 0
  const answer = await send(family, json.replace(tree, served.computer.store.emptyTree))
  expect(answer).toContain('"isError":true')
  expect(answer).toContain(reason)
  expect(answer).not.toContain('internal error')
  expect(answer.length).toBeLessThan(20_000)
  const [event] = served.computer.events.newest(1)
  expect(event).toMatchObject({ id: before + 1, ok: false })
  expect(JSON.stringify(event).length).toBeLessThan(8000)
  expect(errors).toEqual([])
})

test('hundreds of calls at once are as many answers and events', async () => {
  await using caller = await connect(served.url, served.token)
  const before = served.computer.events.newest(1)[0]?.id ?? 0
  const answers = await Promise.all(Array.from({ length: 300 }, () => caller.call('fs', 'empty')))
  expect(new Set(answers.map(({ text }) => text)).size).toBe(1)
  expect(served.computer.events.newest(1)[0]?.id).toBe(before + 300)
})

test('no answer is longer than a client takes in', async () => {
  await using caller = await connect(served.url, served.token)
  const empty = served.computer.store.emptyTree
  served.computer.store.transaction(() => {
    for (let index = 0; index < 2000; index++)
      served.computer.store.refs.create(`a-rather-long-name-of-a-ref/${index}`, empty, { actor: 'test' })
  })
  for (const [family, action, args] of [
    ['ref', 'list', {}],
    ['snapshot', 'create', { name: 'all' }],
    ['snapshot', 'rollback', { name: 'all' }],
    ['computer', 'events', { n: 1000 }],
  ] as const) {
    const { text, isError } = await caller.call(family, action, args)
    expect([family, action, isError]).toEqual([family, action, false])
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(60_000)
  }
})

test('a token that a client puts into its arguments stays out of the events', async () => {
  await using caller = await connect(served.url, served.token)
  const { token: other } = served.computer.seats.create('other')
  served.computer.seats.ensure('host', 'a-token-that-the-host-handed-in-0123')
  await using host = await connect(served.url, 'a-token-that-the-host-handed-in-0123')
  const made = await caller.call('fs', 'empty')
  await caller.call('exec', 'run', {
    tree: treeIn(made.text),
    argv: ['true', `Authorization: Bearer ${served.token}`, other],
  })
  await caller.call('fs', other, { [served.token]: 1 })
  await host.call('git', 'import', { src: 'https://x:a-token-that-the-host-handed-in-0123@127.0.0.1:1/', name: 'x' })
  await host.call('ref', 'get', { name: 'a-token-that-the-host-handed-in-0123' })
  const text = JSON.stringify(served.computer.events.newest(10))
  for (const secret of [served.token, other, 'a-token-that-the-host-handed-in']) expect(text).not.toContain(secret)
  expect(text).toContain('(secret)')
})
