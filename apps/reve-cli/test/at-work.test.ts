import { once } from 'node:events'
import { cp, readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { text as readAll } from 'node:stream/consumers'
import { probeBackends } from '@reve/sandbox-microvm'
import { describe, expect, test } from 'vitest'
import { surroundings } from '../src/surroundings.ts'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const [backend] = (await probeBackends(surroundings(process.env))).filter(({ ok }) => ok)
if (backend === undefined) process.stderr.write('no microVM boots here: what needs one is not tested\n')

type Message = {
  readonly role: string
  readonly content?: unknown
  readonly tool_calls?: readonly { readonly function: { readonly name: string } }[]
}

/** A server of Chat Completions that answers with these, one a request, and keeps what it was told. */
async function modelServer(
  ...answers: readonly { readonly text?: string; readonly call?: readonly [string, object] }[]
) {
  const told: (readonly Message[])[] = []
  const server = createServer((request, response) => {
    void readAll(request).then((body) => {
      const { text, call } = answers[told.length] ?? { text: 'There is no more.' }
      told.push((JSON.parse(body) as { readonly messages: readonly Message[] }).messages)
      const calls = call && [
        { index: 0, id: `call_${told.length}`, function: { name: call[0], arguments: JSON.stringify(call[1]) } },
      ]
      const delta = { ...(text !== undefined && { content: text }), ...(calls && { tool_calls: calls }) }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(
        `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: calls ? 'tool_calls' : 'stop' }] })}\n\ndata: [DONE]\n\n`,
      )
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0
  return { told, port, [Symbol.dispose]: () => server.close() }
}

const messagesOf = async (folder: string): Promise<readonly Message[]> => {
  const [name = ''] = (await readdir(join(folder, '.reve', 'sessions'))).filter((file) => file.endsWith('.jsonl'))
  const lines = (await readFile(join(folder, '.reve', 'sessions', name), 'utf8')).trimEnd().split('\n')
  return lines.flatMap((line) => (JSON.parse(line) as { readonly message?: Message }).message ?? [])
}

/** The processes of this machine that have the folder in their arguments; none where there is no /proc to tell. */
const processesOf = async (folder: string): Promise<readonly string[]> => {
  const pids = await readdir('/proc').catch(() => [])
  const lines = pids.map((pid) => readFile(join('/proc', pid, 'cmdline'), 'utf8').catch(() => ''))
  return (await Promise.all(lines)).filter((line) => line.includes(folder))
}

describe.skipIf(backend === undefined)('an agent at work', () => {
  test('one tool writes in the VM, another reads it; the model is told of both, and its last answer is kept', async () => {
    using server = await modelServer(
      { text: 'I write.', call: ['bash', { command: 'uname -n; echo "from the VM" >note.txt' }] },
      { call: ['read', { path: 'note.txt' }] },
      { text: 'It says: from the VM.' },
    )
    const folder = await folderWith({
      ...agentFiles(''),
      'agent.lua': 'agent { model = "here/m" }\n',
      'models.yml': `providers:\n  here:\n    api: openai-completions\n    baseUrl: http://127.0.0.1:${server.port}/v1\n    models: [{ id: m }]\n`,
      'workspace/.keep': '',
    })
    expect(await reve(['run', 'Leave a note and read it.'], folder)).toMatchObject({
      code: 0,
      stdout: 'It says: from the VM.\n',
    })
    expect(await readFile(join(folder, 'workspace/note.txt'), 'utf8')).toBe('from the VM\n')
    // Each request is the one before, and what came since.
    const [first, second, third] = server.told
    expect(second?.slice(0, first?.length)).toEqual(first)
    expect(third?.slice(0, second?.length)).toEqual(second)
    expect(third?.slice(1)).toMatchObject([
      { role: 'user', content: 'Leave a note and read it.' },
      { role: 'assistant', content: 'I write.', tool_calls: [{ function: { name: 'bash' } }] },
      { role: 'tool', tool_call_id: 'call_1' },
      { role: 'assistant', tool_calls: [{ function: { name: 'read' } }] },
      { role: 'tool', tool_call_id: 'call_2', content: '    1  from the VM' },
    ])
    expect((await messagesOf(folder)).map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'toolResult',
      'assistant',
      'toolResult',
      'assistant',
    ])
    expect(await processesOf(folder)).toEqual([])
    expect(await readFile(join(folder, '.reve/sandbox-fingerprint'), 'utf8')).toMatch(/\w{16}/)
  })

  test('copied, it is a second one: with its conversation and its disk, beside the first', async () => {
    const folder = await folderWith({ ...agentFiles('- text: One.\n- text: Two.\n'), 'workspace/.keep': '' })
    expect(await reve(['exec', 'echo mine >/root/kept'], folder)).toMatchObject({ code: 0 })
    expect(await reve(['run', 'hello'], folder)).toMatchObject({ code: 0, stdout: 'One.\n' })
    const copy = `${folder}-copied`
    await cp(folder, copy, { recursive: true })
    expect(await reve(['run', '--continue', 'and?'], copy)).toMatchObject({ code: 0, stdout: 'Two.\n' })
    expect((await messagesOf(copy)).length).toBe((await messagesOf(folder)).length + 2)
    // Each waits for the other to be at work, by the host's own hand.
    const meet =
      'cat /root/kept; touch here; i=0; while [ ! -e go ] && [ $i -lt 600 ]; do sleep 0.2; i=$((i+1)); done; [ -e go ]'
    const both = [folder, copy].map((agent) => reve(['exec', meet], agent))
    const there = async (agent: string): Promise<boolean> => (await readdir(join(agent, 'workspace'))).includes('here')
    const met = (async () => {
      while (!((await there(folder)) && (await there(copy)))) await new Promise((done) => setTimeout(done, 50))
      if ((await readdir('/proc').catch(() => [])).length > 0)
        expect((await processesOf(copy)).length).toBeGreaterThan(0)
      for (const agent of [folder, copy]) await cp(join(agent, 'workspace/.keep'), join(agent, 'workspace/go'))
    })()
    expect(await Promise.all(both)).toMatchObject([
      { code: 0, stdout: 'mine\n' },
      { code: 0, stdout: 'mine\n' },
    ])
    await met
  })
})
