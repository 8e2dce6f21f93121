import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { loadLua } from '@reve/lua-runtime'
import * as v from 'valibot'
import { expect, onTestFinished, test } from 'vitest'
import { serviceEffects } from '../../src/effects.ts'
import { createMcpTools } from '../../src/mcp-tools.ts'
import { McpTable } from '../../src/mcp/setting.ts'

const program = [
  '--conditions=@reve/source',
  fileURLToPath(new URL('../../../../apps/kc-server/src/main.ts', import.meta.url)),
]

/** A computer that is served, and the token of its one seat. */
async function computer() {
  const env = { ...process.env, KC_ROOT: join(await mkdtemp(join(tmpdir(), 'kc-')), 'kc') }
  const kc = async (...args: readonly string[]): Promise<string> =>
    (await promisify(execFile)(process.execPath, [...program, ...args], { env })).stdout
  await kc('init')
  const token = (await kc('seat', 'create', 'agent')).trim()
  const child = spawn(process.execPath, [...program, 'serve', '--port', '0', '--json'], {
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
  return { token, url: (JSON.parse(line) as { readonly url: string }).url }
}

/** `mcp` of the example of the page. */
async function example() {
  const page = await readFile(new URL('../../../../docs/mcp.md', import.meta.url), 'utf8')
  const source = /^```lua\n([^]*?)^```$/m.exec(page)?.[1] ?? ''
  await using lua = await loadLua({ agent: { file: 'agent.lua', source }, tools: [] })
  return v.parse(v.object({ mcp: McpTable }), lua.program.agent?.value).mcp
}

test('a kc computer is a server whose tools an agent has, as the page says', async () => {
  const { token, url } = await computer()
  const { kc } = await example()
  if (kc === undefined) throw new Error('the page has no kc')
  await using mcp = createMcpTools({
    setting: () => ({ kc: { ...kc, url } }),
    env: (name) => (name === 'KC_TOKEN' ? token : undefined),
    after: serviceEffects().after,
    shorten: async (text) => text,
  })
  expect(await mcp.refresh()).toEqual([])
  expect(mcp.tools().map(({ name }) => name)).toEqual(
    ['branch', 'computer', 'exec', 'fs', 'git', 'ref', 'seat', 'snapshot'].map((name) => `kc__${name}`),
  )
  expect(mcp.instructions()[0]?.text).toContain('A computer:')
  const fs = mcp.tools().find(({ name }) => name === 'kc__fs')
  const call = async (args: Parameters<NonNullable<typeof fs>['run']>[0]) =>
    fs?.run(args, {
      signal: new AbortController().signal,
      progress: () => undefined,
      lane: 'main',
      runId: 'run_1',
      toolCallId: 'c',
      idempotencyKey: 'e_1',
      subagent: () => Promise.reject(new Error('no sub-agents here')),
    })
  expect(await call({ action: 'empty' })).toMatchObject({
    isError: false,
    content: [{ type: 'text', text: expect.stringMatching(/[0-9a-f]{64}/) }],
  })
  expect(await call({ action: 'nonsense' })).toMatchObject({ isError: true })
})
