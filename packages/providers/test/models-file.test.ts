import { YamlError } from '@reve/base/yaml'
import { describe, expect, test } from 'vitest'
import { loadModels, ModelsError, parseScript } from '../src/index.ts'
import type { ModelCatalogue } from '../src/index.ts'
import { serve } from './fixture-server.ts'
import { ask, run, sse } from './play.ts'

const template = `# This agent's models.
providers:
  openai:
    baseUrl: https://api.openai.com/v1
    api: openai-responses
    apiKey: $OPENAI_API_KEY
    models:
      - id: gpt-5.6-luna
        reasoning: true
        contextWindow: 200000
        maxTokens: 8192
  openrouter:
    baseUrl: https://openrouter.ai/api/v1
    api: openai-completions
    apiKey: $OPENROUTER_API_KEY
    models:
      - id: x-ai/grok-4.6
        contextWindow: 500000
        price: {input: 3, output: 15, cacheRead: 0.3}
      - id: other
  llamacpp:
    baseUrl: $LLAMA_CPP_BASE
    api: openai-completions
    compat:
      supportsStore: false
      supportsDeveloperRole: false
      supportsReasoningEffort: false
      maxTokensField: max_tokens
    models:
      - id: local
`
type Env = Readonly<Record<string, string>>
const load = (source: string, env: Env = {}, scripts: Env = {}): Promise<ModelCatalogue> =>
  loadModels(source, {
    file: 'models.yml',
    env: (name) => env[name],
    readFile: async (path) => {
      const script = scripts[path]
      if (script === undefined) throw new Error('no such file')
      return script
    },
  })
const problemOf = async (source: string, scripts?: Env): Promise<string> =>
  (await load(source, {}, scripts)).problems.map(({ message }) => message).join('\n')
function errorOf(action: () => unknown): ModelsError {
  try {
    action()
  } catch (error) {
    if (error instanceof ModelsError) return error
    throw error
  }
  throw new Error('nothing was thrown')
}

describe('a right file', () => {
  test('lists its models by provider, then in order, with defaults', async () => {
    const { models, problems } = await load(template)
    expect(problems).toEqual([])
    expect(models.map(({ id }) => id)).toEqual([
      'llamacpp/local',
      'openai/gpt-5.6-luna',
      'openrouter/x-ai/grok-4.6',
      'openrouter/other',
    ])
    expect(models[1]).toEqual({
      id: 'openai/gpt-5.6-luna',
      api: 'openai-responses',
      reasoning: true,
      contextWindow: 200_000,
      maxTokens: 8192,
    })
    expect(models[2]).toMatchObject({
      reasoning: false,
      maxTokens: 8192,
      price: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3 },
    })
  })
  test('resolves at the first slash', async () => {
    const catalogue = await load(template, {
      OPENROUTER_API_KEY: 'k',
      OPENAI_API_KEY: 'k',
      LLAMA_CPP_BASE: 'http://127.0.0.1:1',
    })
    expect(catalogue.resolve('openrouter/x-ai/grok-4.6')).toMatchObject({
      id: 'openrouter/x-ai/grok-4.6',
      contextWindow: 500_000,
      maxTokens: 8192,
      price: { input: 3 },
    })
    expect(catalogue.resolve('openrouter').id).toBe('openrouter/x-ai/grok-4.6')
    expect(catalogue.resolve('openrouter/').id).toBe('openrouter/x-ai/grok-4.6')
    expect(catalogue.resolve('gpt-5.6-luna').id).toBe('openai/gpt-5.6-luna')
  })
  test('an unknown model lists the known and guesses', async () => {
    const catalogue = await load(template)
    const error = errorOf(() => catalogue.resolve('openai/gpt-5.6-lunar'))
    expect(error.code).toBe('unknown_model')
    expect(error.message).toContain('did you mean "openai/gpt-5.6-luna"')
    for (const { id } of catalogue.models) expect(error.message).toContain(id)
    expect(errorOf(() => catalogue.resolve('')).code).toBe('unknown_model')
    expect(errorOf(() => catalogue.resolve('x-ai/grok-4.6')).code).toBe('unknown_model')
    expect(errorOf(() => catalogue.resolve('grok/x')).code).toBe('unknown_model')
    const none = await load('providers: {}')
    expect(errorOf(() => none.resolve('a/b')).message).toContain('no usable model')
  })
})

describe('variables', () => {
  const message = async (env: Env, model = 'openai'): Promise<string> => {
    const catalogue = await load(template, env)
    const error = errorOf(() => catalogue.resolve(model))
    expect(error.code).toBe('bad_variable')
    return error.message
  }
  test('unset and empty are named, and only those of the provider that is asked for', async () => {
    expect(await message({ OPENROUTER_API_KEY: 'k' })).toBe(
      'models.yml: provider openai: apiKey refers to $OPENAI_API_KEY, which is not set; set it',
    )
    expect(await message({ OPENAI_API_KEY: '' })).toContain('$OPENAI_API_KEY, which is empty')
    expect(await message({ OPENAI_API_KEY: ' \n' })).toContain('which is empty')
    expect(await message({}, 'llamacpp')).toContain('baseUrl refers to $LLAMA_CPP_BASE, which is not set')
  })
  test('a value of no use is not repeated', async () => {
    expect(await message({ OPENAI_API_KEY: 'sk-SENTINEL\nsk-TWO' })).not.toContain('SENTINEL')
    expect(await message({ LLAMA_CPP_BASE: 'http://me:SENTINEL@host/' }, 'llamacpp')).not.toContain('SENTINEL')
    expect(await message({ LLAMA_CPP_BASE: 'ftp://SENTINEL' }, 'llamacpp')).not.toContain('SENTINEL')
  })
  test('the line end of a file around a key is taken off; key and base reach the wire', async () => {
    await using server = await serve(() => ({ pieces: [sse('[DONE]')] }))
    const source = `providers: {a: {baseUrl: $BASE, api: openai-completions, apiKey: $KEY, models: [{id: m}]}}`
    const catalogue = await load(source, { BASE: `${server.url}/x`, KEY: 'secret-key\n' })
    await run(catalogue.resolve('a/m'))
    expect(server.requests[0]).toMatchObject({
      path: '/x/chat/completions',
      headers: { authorization: 'Bearer secret-key' },
    })
  })
})

describe('a wrong file', () => {
  const provider = (lines: string): string =>
    `providers:\n  good: {baseUrl: "http://h", api: openai-completions, models: [{id: m}]}\n  bad:\n${lines.replace(/^/gm, '    ')}\n`

  test('one bad provider does not hide the others, and says why it cannot be used', async () => {
    const catalogue = await load(
      provider('api: openai-responses\nbaseUrl: http://h\nmodels:\n  - id: m\n    contextWindow: big'),
      {},
    )
    expect(catalogue.models.map(({ id }) => id)).toEqual(['good/m'])
    expect(catalogue.resolve('good/m').id).toBe('good/m')
    expect(catalogue.problems).toEqual([
      {
        provider: 'bad',
        message: 'models.yml:8:24: providers/bad/models/0/contextWindow: must be a whole number of tokens',
      },
    ])
    const error = errorOf(() => catalogue.resolve('bad/m'))
    expect(error.code).toBe('bad_provider')
    expect(error.message).toContain('models.yml:8:24')
  })
  test.each([
    ['apiKey: sk-SENTINEL-123', '$ENV_VAR'],
    ['apiKey: 5551234', '$ENV_VAR'],
    ['apiKey: "$sk-SENTINEL"', '$ENV_VAR'],
    ['apiKey: [sk-SENTINEL]', '$ENV_VAR'],
    ['apikey: $KEY', 'unknown key (did you mean "apiKey"?)'],
    ['api_key: sk-SENTINEL', 'did you mean "apiKey"'],
    ['baseUrl: "http://me:SENTINEL@host/"', 'without user and password'],
    ['baseUrl: file:///SENTINEL', 'must be an http or https URL'],
    [
      'api: openai-response',
      'must be one of openai-responses, openai-completions, anthropic-messages, scripted (did you mean "openai-responses"?)',
    ],
    ['models: []', 'at least one'],
    ['models: [{id: a}, {id: a}]', 'two models with one id'],
    ['models: [{id: a, contextWindow: 1.5}]', 'whole number'],
    ['models: [{id: a, maxTokens: 0}]', 'at least 1'],
    ['models: [{id: a, price: {input: -1, output: 1}}]', 'must not be negative'],
    ['models: [{id: a, turns: [{text: x}]}]', 'unknown key'],
    ['models: [{contextWindow: 5}]', 'is missing'],
    ['compat: {supportStore: true}', 'did you mean "supportsStore"'],
    ['compat: {maxTokensField: tokens}', 'must be one of'],
  ])('%s', async (line, expected) => {
    const defaults = ['baseUrl: http://h', 'api: openai-completions', 'models: [{id: m}]']
    const lines = [...defaults.filter((other) => other.split(':')[0] !== line.split(':')[0]), line]
    const problem = await problemOf(provider(lines.join('\n')))
    expect(problem).toMatch(/^models\.yml:\d+:\d+: providers\/bad\//)
    expect(problem).toContain(expected)
    for (const secret of ['SENTINEL', '5551234']) expect(problem).not.toContain(secret)
  })
  test('several issues of several providers at once, each beside its own', async () => {
    const { problems } = await load(
      'providers:\n  a: {api: scripted}\n  b: {api: openai-responses, models: [{id: 1}]}\n',
    )
    expect(problems.map(({ provider: name }) => name)).toEqual(['a', 'b'])
    expect(problems[1]?.message.split('\n')).toHaveLength(2)
  })
  test('a name with a slash, which no reference could reach', async () => {
    expect(await problemOf('providers:\n  a/b: {api: scripted, models: [{id: m, turns: [{text: x}]}]}\n')).toContain(
      'first slash',
    )
  })
  test('what is wrong outside of the providers is thrown', async () => {
    for (const source of [
      '',
      'providers:\n',
      'providers: []',
      'provider: {}',
      'providers: {}\nextra: 1',
      '- a',
      'a: b: c',
      'providers: {a: {}, a: {}}',
    ]) {
      await expect(load(source)).rejects.toThrow(YamlError)
    }
    await expect(load('providrs: {}')).rejects.toThrow(/models\.yml:1:\d+: .*(?:did you mean "providers"|is missing)/)
  })
})

describe('scripted models', () => {
  const source =
    'providers:\n  demo:\n    api: scripted\n    models:\n      - id: inline\n        turns:\n          - text: hi\n      - id: file\n        script: scripts/a.yml\n'
  test('turns inline and from a file', async () => {
    const catalogue = await load(
      source,
      {},
      { 'scripts/a.yml': '- text: from a file\n  calls:\n    - name: bash\n      arguments: {command: ls}\n' },
    )
    expect(catalogue.problems).toEqual([])
    expect((await run(catalogue.resolve('demo/inline'))).outcome).toMatchObject({
      message: { model: 'demo/inline', content: [{ text: 'hi' }] },
    })
    expect((await run(catalogue.resolve('demo/file'), ask)).outcome).toMatchObject({
      message: { content: [{ text: 'from a file' }, { name: 'bash', arguments: { command: 'ls' } }] },
    })
  })
  test('failing attempts are counted over two resolves', async () => {
    const catalogue = await load(
      'providers: {d: {api: scripted, models: [{id: m, turns: [{text: x, fail: {times: 1}}]}]}}',
    )
    expect((await run(catalogue.resolve('d/m'))).outcome.type).toBe('failed')
    expect((await run(catalogue.resolve('d/m'))).outcome.type).toBe('answer')
  })
  test('a script that is missing or wrong stands at its place, with its own line', async () => {
    expect(await problemOf(source)).toBe(
      'models.yml:9:17: providers/demo/models/1/script: cannot read scripts/a.yml: no such file',
    )
    expect(await problemOf(source, { 'scripts/a.yml': '- text: a\n  txt: b\n' })).toMatch(
      /models\.yml:9:17.*\nscripts\/a\.yml:2:\d+: 0\/txt: unknown key \(did you mean "text"\?\)/,
    )
  })
  test('neither or both of turns and script', async () => {
    expect(await problemOf('providers: {d: {api: scripted, models: [{id: m}]}}')).toContain('either turns or script')
    expect(
      await problemOf('providers: {d: {api: scripted, baseUrl: "http://h", models: [{id: m, turns: [{}]}]}}'),
    ).toContain('unknown key')
  })
  test('a script by itself', () => {
    expect(
      parseScript('- fail: {code: overloaded, times: 2, afterText: true}\n  usage: {input: 5}\n', 's.yml'),
    ).toEqual([{ fail: { code: 'overloaded', times: 2, afterText: true }, usage: { input: 5 } }])
    for (const bad of [
      '',
      '[]',
      'text: x',
      '- stop: aborted',
      '- chunk: 0',
      '- delayMs: -1',
      '- fail: {code: nope}',
      '- calls: [{name: f, arguments: {}, malformed: x}]',
    ]) {
      expect(() => parseScript(bad, 's.yml')).toThrow(YamlError)
    }
  })
})
