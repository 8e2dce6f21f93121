import { describeIssues } from '@reve/base'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { endpointOf, mcpKeysAt, mcpNames, mcpSecrets, McpTable } from '../../src/mcp/setting.ts'

const url = 'https://mcp.example.com/mcp'
const problems = (table: unknown): readonly string[] => {
  const { issues = [] } = v.safeParse(McpTable, table)
  return describeIssues(issues).map(({ path, message }) => `${path}: ${message}`)
}

test('headers take their secrets from the environment', () => {
  const setting = v.parse(McpTable, {
    b: { url, headers: { Authorization: 'Bearer $T', 'X-Price': '$$1', 'X-Both': '${U}-$T' } },
    a: { url },
  })
  const env = (name: string): string | undefined => ({ T: 'token-of-b\n', U: 'user' })[name]
  expect(mcpNames(setting)).toEqual(['a', 'b'])
  expect(setting['b'] && endpointOf(setting['b'], env)).toEqual({
    type: 'endpoint',
    url: new URL(url),
    headers: { Authorization: 'Bearer token-of-b', 'X-Price': '$1', 'X-Both': 'user-token-of-b' },
  })
  expect(mcpSecrets(setting, env)).toEqual(['token-of-b', 'user', 'token-of-b'])
  expect(setting['b'] && endpointOf(setting['b'], () => undefined)).toEqual({
    type: 'problem',
    text: 'its header Authorization refers to $T, which is not set',
  })
  const broken = setting['b'] && endpointOf(setting['b'], () => 'a\nsecret')
  expect(broken?.type).toBe('problem')
  expect(JSON.stringify(broken)).not.toContain('secret')
})

test.each([
  [{ a__b: { url } }, 'a__b: is no name of a server'],
  [{ '1a': { url } }, '1a: is no name of a server'],
  [{ a: {} }, 'a/url: is missing'],
  [{ a: { url: 'stdio:server' } }, 'a/url: must be an http or https URL'],
  [{ a: { url: 'nonsense' } }, 'a/url: must be an http or https URL'],
  [{ a: { url: 'https://me:hunter2@host/' } }, 'a/url: must hold no user or password'],
  [{ a: { url, command: 'npx' } }, 'a/command: '],
  [{ a: { url, headers: { Authorization: 'Bearer hunter2' } } }, 'a/headers/Authorization: must refer to a variable'],
  [{ a: { url, headers: { 'x-api-key': 'hunter2' } } }, 'a/headers/x-api-key: must refer to a variable'],
  [{ a: { url, headers: { Host: 'b' } } }, 'a/headers/Host: is set by reve itself'],
  [{ a: { url, headers: { 'Mcp-Session-Id': 'b' } } }, 'a/headers/Mcp-Session-Id: is set by reve itself'],
  [{ a: { url, headers: { 'a b': 'c' } } }, 'a/headers/a b: is no name of a header'],
  [{ a: { url, headers: { a: 'b\nc: d' } } }, 'a/headers/a: has characters that no header takes'],
  [{ a: { url, headers: ['x'] } }, 'a/headers'],
  ['https://host', ': must be a table of servers'],
])('%j is refused: %s', (table, problem) => {
  const found = problems(table)
  expect(found[0]).toContain(problem)
  expect(found.join()).not.toContain('hunter2')
})

test('the keys of a server are known for hints', () => {
  expect([mcpKeysAt('mcp/a'), mcpKeysAt('mcp'), mcpKeysAt('mcp/a/headers')]).toEqual([
    ['url', 'headers'],
    undefined,
    undefined,
  ])
})
