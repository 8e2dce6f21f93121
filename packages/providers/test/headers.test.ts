import { expect, test } from 'vitest'
import { loadModels } from '../src/index.ts'
import { serve } from './fixture-server.ts'
import { run } from './play.ts'

const load = (headers: string, baseUrl = 'http://h', env: Readonly<Record<string, string>> = {}) =>
  loadModels(
    `providers:\n  p:\n    baseUrl: ${baseUrl}\n    api: openai-completions\n    headers:\n${headers}\n    models: [{id: m}]\n`,
    { file: 'models.yml', env: (name) => env[name] },
  )

test('reach the server with the values of their variables, which no message shows', async () => {
  await using server = await serve(() => ({
    status: 401,
    headers: { 'content-type': 'application/json' },
    pieces: ['{"error":{"message":"bad token SENTINEL-token for SENTINEL%2Ftwo"}}'],
  }))
  const headers = [
    'authorization: Bearer $TOKEN',
    'x-team: "${TEAM}/a"',
    'x-price: "$$5"',
    'X-Title: reve',
    'x-own: $SLASHED',
  ].map((line) => `      ${line}`)
  const env = { TOKEN: 'SENTINEL-token', TEAM: 'SENTINEL-team', SLASHED: 'SENTINEL/two' }
  const model = (await load(headers.join('\n'), server.url, env)).resolve('p/m')
  const { outcome } = await run(model)
  expect(server.requests[0]?.headers).toMatchObject({
    authorization: 'Bearer SENTINEL-token',
    'x-team': 'SENTINEL-team/a',
    'x-price': '$5',
    'x-title': 'reve',
  })
  expect(JSON.stringify(outcome)).not.toContain('SENTINEL')
  expect(outcome).toMatchObject({ failure: { code: 'auth', message: expect.stringContaining('bad token [redacted]') } })
})

test('with an unset or useless variable are an error of the provider that is asked for', async () => {
  const catalogue = await load('      x-a: $GONE')
  expect(() => catalogue.resolve('p/m')).toThrow('headers: x-a refers to $GONE, which is not set')
  expect(() => catalogue.resolve('p/m')).toThrow(expect.objectContaining({ code: 'bad_variable' }))
})

test.each([
  ['authorization: Bearer sk-SENTINEL', 'must refer to a $ENV_VAR; secrets do not belong in this file'],
  ['x-api-key: SENTINEL', 'must refer to a $ENV_VAR'],
  ['My-Token: SENTINEL', 'must refer to a $ENV_VAR'],
  ['host: other', 'is set by reve itself'],
  ['"a b": x', 'is no name of a header'],
  ['x-a: "a\\nb"', 'has characters that no header takes'],
  ['x-a: 5', 'must be text'],
])('%s is refused at its place', async (line, expected) => {
  const [problem] = (await load(`      ${line}`)).problems
  expect(problem?.message).toMatch(/^models\.yml:6:\d+: providers\/p\/headers/)
  expect(problem?.message).toContain(expected)
  expect(problem?.message).not.toContain('SENTINEL')
})
