import { readFileSync } from 'node:fs'
import { Validator } from '@cfworker/json-schema'
import { parseYaml } from '@reve/base/yaml'
import * as v from 'valibot'
import { describe, expect, test } from 'vitest'
import { loadModels } from '../src/index.ts'

const schema = JSON.parse(readFileSync(new URL('../models.schema.json', import.meta.url), 'utf8')) as Readonly<
  Record<string, unknown>
>
const validator = new Validator(schema, '7')
const template = readFileSync(new URL('../../agent/templates/models.yml', import.meta.url), 'utf8')

/** Whether an editor that goes by the schema, and reve itself, take a file. */
async function judges(text: string): Promise<{ readonly editor: boolean; readonly reve: boolean }> {
  const editor = validator.validate(parseYaml(text, 'models.yml', v.unknown())).valid
  const reve = await loadModels(text, {
    file: 'models.yml',
    env: () => undefined,
    readFile: async (path) => (path.endsWith('.pem') ? '-----BEGIN CERTIFICATE-----' : '- text: x\n'),
  }).then(
    ({ problems }) => problems.length === 0,
    () => false,
  )
  return { editor, reve }
}

const http = (lines: string): string =>
  `providers:\n  p:\n    baseUrl: http://h\n    api: openai-completions\n    models: [{id: m}]\n    ${lines}\n`
const model = (fields: string): string =>
  `providers:\n  p: {baseUrl: http://h, api: anthropic-messages, models: [{id: m, ${fields}}]}\n`
const turn = (fields: string): string => `providers:\n  p: {api: scripted, models: [{id: m, turns: [{${fields}}]}]}\n`

describe('the schema for editors', () => {
  test.each([
    template,
    template.replaceAll(/^( *)# (?=[ \w]+:|  )/gm, '$1'),
    http('apiKey: $KEY'),
    http('headers: {x-title: "reve ${VERSION}", authorization: Bearer $TOKEN}'),
    http('ca: company.pem'),
    http('compat: {supportsStore: true, maxTokensField: max_tokens}'),
    model('thinking: {off: 0, low: gentle, high: null}'),
    model('price: {input: 1, output: 2.5, cacheRead: 0}, reasoning: true, contextWindow: 5, maxTokens: 6'),
    turn('text: a, reasoning: b, calls: [{name: x, arguments: {}}], delayMs: 5, chunk: 1, stop: length'),
    turn('usage: {input: 1}, fail: {code: rate_limited, times: 2, retryAfterMs: 5, afterText: true}'),
    'providers:\n  p: {api: scripted, models: [{id: m, script: s.yml}]}\n',
  ])('takes what reve takes: %s', async (text) => {
    expect(await judges(text)).toEqual({ editor: true, reve: true })
  })

  test.each([
    '{}\n',
    'provider: {}\n',
    'providers: {}\nmore: 1\n',
    'providers:\n  a/b: {api: scripted, models: [{id: m, turns: [{text: x}]}]}\n',
    http('apikey: $KEY'),
    http('apiKey: sk-123456'),
    'providers:\n  p: {baseUrl: http://h, api: openai-responses, models: []}\n',
    http('compat: {supportStore: true}'),
    http('headers: [a]'),
    model('contextWindow: 1.5'),
    model('maxTokens: 0'),
    model('price: {input: 1}'),
    model('thinking: {loud: x}'),
    model('thinking: {low: {}}'),
    model('turns: [{text: x}]'),
    turn('txt: a'),
    turn('calls: [{arguments: {}}]'),
    turn('stop: aborted'),
    turn('fail: {code: nothing}'),
    'providers:\n  p: {api: scripted, models: [{id: m}]}\n',
    'providers:\n  p: {api: openai, models: [{id: m}]}\n',
  ])('refuses what reve refuses: %s', async (text) => {
    expect(await judges(text)).toEqual({ editor: false, reve: false })
  })
})
