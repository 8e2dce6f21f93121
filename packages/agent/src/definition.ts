import type { Dirent } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { codeOf, describeIssues, didYouMean, messageOf } from '@reve/base'
import type { Budget } from '@reve/harness'
import { loadLua, LuaError, positionOf, type Declared, type LuaRuntime, type LuaSource } from '@reve/lua-runtime'
import { checkPolicy, type SandboxPolicy } from '@reve/sandbox-microvm/policy'
import * as v from 'valibot'
import { agentRoot } from './agent-root.ts'
import { channelKeys, ChannelsTable } from './channels/configure.ts'
import { AgentError } from './errors.ts'
import { mcpKeysAt, type McpSetting, McpTable } from './mcp/setting.ts'

/** Where the modules of `require` lie. */
export const LIBRARY = 'tools/lib'

/** Keys of each table, by its path. */
const known: Readonly<Record<string, readonly string[]>> = {
  '': ['model', 'thinking', 'name', 'budget', 'channels', 'mcp'],
  ...Object.fromEntries(
    Object.entries(channelKeys).map(([path, keys]) => [path === '' ? 'channels' : `channels/${path}`, keys]),
  ),
  budget: ['run', 'day'],
  'budget/run': ['tokens', 'usd'],
  'budget/day': ['tokens', 'usd'],
}

const amount = (unit: string) =>
  v.optional(v.pipe(v.number(`must be a number of ${unit}`), v.finite(), v.minValue(0, 'must not be negative')))
const spendable = v.optional(
  v.strictObject(
    { tokens: amount('tokens'), usd: amount('US dollars') },
    'must be a table like { tokens = 2000000, usd = 5 }',
  ),
)

/** The table given to `agent{}`; unknown keys are refused. */
const AgentTable = v.strictObject({
  model: v.optional(
    v.pipe(v.string('must be a string such as "openai/gpt-5.6-luna"'), v.nonEmpty('must not be empty')),
  ),
  thinking: v.optional(
    v.union(
      [v.picklist(['off', 'minimal', 'low', 'medium', 'high']), v.pipe(v.number(), v.integer(), v.minValue(0))],
      'must be "off", "minimal", "low", "medium", "high" or a number of tokens',
    ),
  ),
  name: v.optional(
    v.pipe(v.string('must be a string'), v.regex(/^[\w -]{1,64}$/, 'takes 1 to 64 letters, digits, spaces, _ or -')),
  ),
  /** What one run, and all runs of one day (UTC), may use; a run that would use more ends. */
  budget: v.optional(v.strictObject({ run: spendable, day: spendable }, 'must be a table with `run`, `day` or both')),
  /** The channels that others may use; none by default. */
  channels: v.optional(ChannelsTable),
  /** MCP servers whose tools the agent has; none by default. */
  mcp: v.optional(McpTable),
})

/** What an agent's own files say, checked; nothing of it has run yet but Lua's top level. */
export type Definition = {
  /** Real path of the agent's folder. */
  readonly root: string
  readonly name: string
  readonly model: string | undefined
  readonly thinking: 'off' | 'minimal' | 'low' | 'medium' | 'high' | number | undefined
  readonly budget: Budget | undefined
  readonly channels: v.InferOutput<typeof ChannelsTable> | undefined
  readonly mcp: McpSetting
  readonly policy: SandboxPolicy
  readonly instructions: string
  readonly lua: LuaRuntime
}

/**
 * Reads `agent.lua`, `sandbox.lua`, `tools/*.lua` and `channels/*.lua` (sorted, not recursive), the modules below `tools/lib/` and
 * `instructions.md` of an agent directory.
 *
 * @throws AgentError `not_an_agent` when the folder has neither `agent.lua` nor `instructions.md`; `bad_config` listing
 *   every problem as `file:line: message`.
 */
export async function loadDefinition(folder: string): Promise<Definition> {
  const root = await agentRoot(folder)
  const agent = await source(root, 'agent.lua')
  const sandbox = await source(root, 'sandbox.lua')
  const lua = await luaOf({
    ...(agent ? { agent } : {}),
    ...(sandbox ? { sandbox } : {}),
    tools: await luaSources(root, 'tools'),
    channels: await luaSources(root, 'channels'),
    lib: await moduleSources(root),
  })
  try {
    const problems: string[] = []
    const table = agentTable(lua, problems)
    const policy = sandboxPolicy(lua, problems)
    for (const { name, at } of lua.program.channels)
      if (channelKeys['']?.includes(name) === true)
        problems.push(`${at.file}:${at.line}: "${name}" is a channel that comes with reve; give the file another name`)
    if (policy === undefined || problems.length > 0) throw new AgentError('bad_config', problems.join('\n'))
    return {
      root,
      name: table.name ?? basename(root),
      model: table.model,
      thinking: table.thinking,
      budget: budgetOf(table.budget),
      channels: table.channels,
      mcp: table.mcp,
      policy,
      instructions: (await text(join(root, 'instructions.md'))) ?? '',
      lua,
    }
  } catch (error) {
    await lua.close()
    throw error
  }
}

/** Without what is not said: the harness tells the two apart. */
function budgetOf(table: v.InferOutput<typeof AgentTable>['budget']): Budget | undefined {
  if (table === undefined) return undefined
  const limit = (given: NonNullable<typeof table>['run']) => ({
    ...(given?.tokens === undefined ? {} : { tokens: given.tokens }),
    ...(given?.usd === undefined ? {} : { usd: given.usd }),
  })
  return {
    ...(table.run === undefined ? {} : { run: limit(table.run) }),
    ...(table.day === undefined ? {} : { day: limit(table.day) }),
  }
}

async function luaOf(sources: Parameters<typeof loadLua>[0]): Promise<LuaRuntime> {
  try {
    return await loadLua(sources)
  } catch (error) {
    if (error instanceof LuaError) throw new AgentError('bad_config', error.message, { cause: error })
    throw error
  }
}

/** `file:line: place: message`, with the line of the key that is wrong. */
function located(declared: Declared, path: string, message: string): string {
  const { file, line } = positionOf(declared, path)
  return `${file}:${line}: ${path === '' ? '' : `${path}: `}${message}`
}

function agentTable(lua: LuaRuntime, problems: string[]): v.InferOutput<typeof AgentTable> {
  const declared = lua.program.agent
  if (declared === undefined) return {}
  const result = v.safeParse(AgentTable, declared.value)
  if (result.success) return result.output
  for (const { path, message } of describeIssues(result.issues)) {
    const [parent, key] = path.includes('/')
      ? [path.slice(0, path.lastIndexOf('/')), path.slice(path.lastIndexOf('/') + 1)]
      : ['', path]
    const keys = known[parent] ?? mcpKeysAt(parent)
    const isUnknown = key !== '' && keys !== undefined && !keys.includes(key)
    problems.push(located(declared, path, isUnknown ? `unknown key${didYouMean(key, keys)}` : message))
  }
  return {}
}

function sandboxPolicy(lua: LuaRuntime, problems: string[]): SandboxPolicy | undefined {
  const declared = lua.program.sandbox
  const checked = checkPolicy(declared?.value ?? {})
  if (checked.ok) return checked.policy
  for (const { path, message } of checked.problems) {
    problems.push(declared === undefined ? `sandbox.lua: ${message}` : located(declared, path, message))
  }
  return undefined
}

async function luaSources(root: string, folder: 'tools' | 'channels'): Promise<readonly LuaSource[]> {
  const entries = await entriesOf(root, folder)
  const names = entries.filter((entry) => entry.name.endsWith('.lua') && !entry.isDirectory()).map(({ name }) => name)
  const sources: LuaSource[] = []
  for (const name of names.toSorted()) {
    const loaded = await source(root, `${folder}/${name}`)
    if (loaded) sources.push(loaded)
  }
  return sources
}

/** What `require` finds: every Lua file below `tools/lib`, of the agent's own. */
async function moduleSources(root: string): Promise<readonly LuaSource[]> {
  const modules: LuaSource[] = []
  const walk = async (folder: string): Promise<void> => {
    const entries = await entriesOf(root, folder)
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = `${folder}/${entry.name}`
      // A link could lead anywhere, and back.
      if (entry.isSymbolicLink())
        throw new AgentError('bad_config', `${path}: is a link; modules are files of the agent's own`)
      if (entry.isDirectory()) await walk(path)
      else if (entry.name.endsWith('.lua')) modules.push(...[await source(root, path)].filter((found) => !!found))
    }
  }
  await walk(LIBRARY)
  return modules
}

/** None for a folder that is not there. */
async function entriesOf(root: string, folder: string): Promise<readonly Dirent[]> {
  try {
    return await readdir(join(root, folder), { withFileTypes: true })
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return []
    throw new AgentError('io', `${join(root, folder)} cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

async function source(root: string, file: string): Promise<LuaSource | undefined> {
  const contents = await text(join(root, file))
  return contents === undefined ? undefined : { file, source: contents }
}

/** The file's text, or undefined when there is no such file. */
async function text(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw new AgentError('io', `${path} cannot be read: ${messageOf(error)}`, { cause: error })
  }
}
