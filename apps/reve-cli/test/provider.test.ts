import { createServer, type IncomingMessage } from 'node:http'
import { readdir, readFile } from 'node:fs/promises'
import { text as readAll } from 'node:stream/consumers'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const key = 'sk-sentinel-0123456789'
const requests: {
  readonly path: string | undefined
  readonly authorization: string | undefined
  readonly body: string
}[] = []

/** A server that speaks the chat completions protocol: it answers the first request with a failure, then with a text. */
const server = createServer((request: IncomingMessage, response) => {
  void readAll(request).then((body) => {
    requests.push({ path: request.url, authorization: request.headers.authorization, body })
    if (requests.length === 1) {
      response.writeHead(503, { 'content-type': 'application/json', 'retry-after': '0' })
      response.end(JSON.stringify({ error: { message: `overloaded; your key is ${key}` } }))
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const delta of ['Good ', 'evening.'])
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: delta } }] })}\n\n`)
    response.write(
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage: { prompt_tokens: 9, completion_tokens: 3 } })}\n\n`,
    )
    response.end('data: [DONE]\n\n')
  })
})

let port = 0
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  port = typeof address === 'object' && address !== null ? address.port : 0
})
afterAll(() => server.close())

test('a hosted model is asked with the key of the environment, tried again when it is overloaded, and the key is nowhere', async () => {
  const folder = await folderWith({
    ...agentFiles(''),
    'agent.lua': 'agent { model = "local/some/model" }\n',
    'models.yml': `providers:\n  local:\n    api: openai-completions\n    baseUrl: http://127.0.0.1:${port}/v1\n    apiKey: $MY_KEY\n    models: [{ id: some/model, contextWindow: 8000, maxTokens: 1000 }]\n`,
  })
  const run = await reve(['run', 'good evening'], folder, { env: { MY_KEY: key } })
  expect(run).toMatchObject({ code: 0, stdout: 'Good evening.\n' })
  expect(run.stderr).toContain('trying again')
  expect(requests.map(({ path, authorization }) => [path, authorization])).toEqual([
    ['/v1/chat/completions', `Bearer ${key}`],
    ['/v1/chat/completions', `Bearer ${key}`],
  ])
  expect(JSON.parse(requests[1]?.body ?? '{}')).toMatchObject({ model: 'some/model', stream: true })
  const [name = ''] = (await readdir(join(folder, '.reve', 'sessions'))).filter((file) => file.endsWith('.jsonl'))
  const session = await readFile(join(folder, '.reve', 'sessions', name), 'utf8')
  expect(session + run.stdout + run.stderr).not.toContain(key)
  expect(session).toContain('"input":9')
})
