import { once } from 'node:events'
import { createServer } from 'node:net'
import { mkdir, mkdtemp, readdir, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { openAgent } from '../src/index.ts'

async function agentWith(files: Readonly<Record<string, string>>, now: () => number = Date.now) {
  const root = await mkdtemp(join(tmpdir(), 'services-'))
  await mkdir(join(root, 'workspace'))
  for (const [name, text] of Object.entries(files)) await writeFile(join(root, name), text)
  const agent = await openAgent(root, {
    env: (name) => (name === 'T' ? 'a-token-of-some-length' : undefined),
    vm: { cacheDir: join(root, 'cache'), runtimeDir: join(root, 'run') },
    now,
  })
  const session = await agent.openSession({ session: 'new' })
  onTestFinished(async () => {
    await session[Symbol.asyncDispose]()
    await agent.close()
  })
  await session.harness.recover()
  return { root, agent, session }
}
const models = (text: string): string =>
  `providers: { demo: { api: scripted, models: [{ id: m, turns: [{ text: "${text}" }] }] } }`

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  return typeof address === 'object' && address !== null ? address.port : 0
}

test('an agent answers over a channel that its agent.lua names, and tells the model so', async () => {
  const { root, agent, session } = await agentWith({
    'agent.lua': `agent { model = "demo/m", channels = { drop = true, http = { port = ${await freePort()}, token = "$T" } } }`,
    'models.yml': models('Hello.'),
  })
  const port = Promise.withResolvers<number>()
  await using channels = agent.startChannels(session, { onListening: port.resolve })
  void channels
  const headers = { authorization: 'Bearer a-token-of-some-length', 'content-type': 'text/plain' }
  const base = `http://127.0.0.1:${await port.promise}/messages`
  const posted: unknown = await (await fetch(base, { method: 'POST', body: '/quit', headers })).json()
  const id = typeof posted === 'object' && posted !== null && 'id' in posted ? String(posted.id) : ''
  expect(await (await fetch(`${base}/${id}?wait=60`, { headers })).json()).toMatchObject({ ok: true, answer: 'Hello.' })
  expect(JSON.stringify(session.harness.messages())).toContain('<message channel=\\"http\\"')
  expect(await readdir(join(root, 'channels/drop'))).toContain('in')
})

test('an agent has heartbeats, also after it was not there', async () => {
  let now = Date.parse('2026-01-01T00:00:00Z')
  const { agent, session } = await agentWith(
    {
      'agent.lua': 'agent { model = "demo/m" }',
      'models.yml': models('Message: Look.'),
      'workspace/HEARTBEAT.yml': 'tasks: [{ name: a, every: 1h, prompt: Look }]',
    },
    () => now,
  )
  const heard = async (type: string): Promise<unknown> => {
    const found = Promise.withResolvers<unknown>()
    await using heartbeats = agent.startHeartbeats(session, {
      onEvent: (event) => event.type === type && found.resolve(event),
    })
    void heartbeats
    return await found.promise
  }
  expect(await heard('loaded')).toMatchObject({ added: ['a'] })
  now += 5 * 3_600_000
  expect(await heard('finished')).toMatchObject({ task: 'a', beat: { outcome: 'message', missed: 4 } })
  expect(session.harness.status().waiting).toBe(1)
  expect(session.log.lanes()).toContain('heartbeat-a')
})
