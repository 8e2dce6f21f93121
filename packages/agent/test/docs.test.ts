import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { loadLua } from '@reve/lua-runtime'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { ChannelsTable } from '../src/channels/configure.ts'
import { parseHeartbeats } from '../src/heartbeats/heartbeat-file.ts'
import { openAgent } from '../src/index.ts'
import { parseSkill } from '../src/skills.ts'

/** The first fenced block of that language in a page of `docs/`. */
async function example(page: string, language: string): Promise<string> {
  const text = await readFile(new URL(`../../../docs/${page}`, import.meta.url), 'utf8')
  const block = new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, 'm').exec(text)?.[1]
  if (block === undefined) throw new Error(`${page} has no example in ${language}`)
  return block
}

test('the examples of the pages are what the program takes', async () => {
  expect(parseHeartbeats(await example('heartbeats.md', 'yaml'), 'f').map(({ name }) => name)).toEqual([
    'tidy',
    'standup',
    'watch',
  ])
  expect(parseSkill(await example('skills.md', 'markdown'), 'f').name).toBe('release')
  await using lua = await loadLua({
    agent: { file: 'agent.lua', source: await example('channels.md', 'lua') },
    tools: [],
  })
  const table = v.parse(v.object({ channels: ChannelsTable }), lua.program.agent?.value)
  expect(table.channels).toEqual({ drop: true, http: { port: 7411, token: '$REVE_TOKEN' } })
})

test('the files of the page about Lua are an agent', async () => {
  const page = await readFile(new URL('../../../docs/lua.md', import.meta.url), 'utf8')
  const root = await mkdtemp(join(tmpdir(), 'lua-page-'))
  const names: string[] = []
  for (const [, name = '', text = ''] of page.matchAll(/^```lua\n-- (\S+)\n([^]*?)^```$/gm)) {
    names.push(name)
    await mkdir(dirname(join(root, name)), { recursive: true })
    await writeFile(join(root, name), text)
  }
  await using agent = await openAgent(root, {
    env: () => undefined,
    vm: { cacheDir: join(root, 'cache'), runtimeDir: join(root, 'run') },
  })
  expect(names).toHaveLength(6)
  expect(agent.info).toMatchObject({ tools: [{ name: 'review' }], channels: ['drop', 'http', 'issues'], mcp: ['kc'] })
  expect(agent.commands()).toMatchObject([{ name: 'standup', args: '[day]' }])
})
