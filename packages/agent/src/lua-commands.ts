import type { LuaHostCalls } from '@reve/lua-runtime'
import * as v from 'valibot'
import { AgentError } from './errors.ts'
import type { LiveDefinition } from './live-definition.ts'
import { jsonOf, parsed } from './lua-host.ts'

/** A command that people type: `/name args`. */
export type AgentCommand = {
  readonly name: string
  readonly description: string
  /** How its arguments are shown: `<host> [branch]`. */
  readonly args?: string
}

/** What came of a command: a text for whoever typed it, or what is to be said to the model in their place. */
export type CommandResult =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'prompt'; readonly prompt: string }

const Answer = v.union(
  [v.string(), v.strictObject({ prompt: v.pipe(v.string(), v.nonEmpty()) })],
  'a command gives a string to show, { prompt = "…" } to say it to the model, or nothing',
)

/** The commands of `agent.lua` and `tools/*.lua`. */
export const agentCommands = (live: Pick<LiveDefinition, 'current'>): readonly AgentCommand[] =>
  live.current().lua.program.commands.map(({ name, description, args }) => ({
    name,
    description,
    ...(args !== undefined && { args }),
  }))

/**
 * Runs one.
 *
 * @throws AgentError `unknown_command`, naming those that there are; LuaError of `@reve/lua-runtime`.
 */
export async function runCommand(
  live: Pick<LiveDefinition, 'current' | 'withLua'>,
  name: string,
  args: string,
  host: LuaHostCalls,
  options: { readonly signal?: AbortSignal },
): Promise<CommandResult> {
  const known = agentCommands(live).map((command) => command.name)
  if (!known.includes(name)) {
    const there = known.length === 0 ? 'it has none' : `it has: ${known.join(', ')}`
    throw new AgentError('unknown_command', `this agent has no command "${name}" (${there})`)
  }
  const given = await live.withLua((lua) => lua.run({ type: 'command', name }, args, host, options))
  const answer = given === undefined || given === null ? '' : parsed(Answer, jsonOf(given))
  return typeof answer === 'string' ? { type: 'text', text: answer } : { type: 'prompt', prompt: answer.prompt }
}
