import type { HookContext, Hooks } from '@reve/harness'
import { emptyTableAsList, type HookDeclaration, type LuaHostCalls, type LuaValue } from '@reve/lua-runtime'
import type { JsonObject, Message } from '@reve/providers/model'
import * as v from 'valibot'
import type { LiveDefinition } from './live-definition.ts'
import { jsonOf, parsed } from './lua-host.ts'

/** A hook stands in the way of a run: one that takes longer is given up. */
const HOOK_MS = 60_000

/**
 * The hooks of `on(event, …)` as the harness calls them. Names and shapes are Lua's; what does not fit is an error of the hook,
 * which the harness tells and goes on without (a call of a tool is blocked).
 */
export function luaHooks(
  live: Pick<LiveDefinition, 'current' | 'withLua'>,
  host: (source: string) => LuaHostCalls,
): readonly Hooks[] {
  return live.current().lua.program.hooks.map((hook) => {
    const name = `${hook.at.file}:${hook.at.line}`
    return { name, ...hookOf(hook, (input, signal) => run(live, hook, input, host(name), signal)) }
  })
}

async function run(
  live: Pick<LiveDefinition, 'withLua'>,
  hook: HookDeclaration,
  input: LuaValue,
  host: LuaHostCalls,
  signal: AbortSignal,
): Promise<unknown> {
  return live.withLua(async (lua) => {
    // The files have changed in this very moment, and the hook went with the old ones.
    if (!lua.program.hooks.includes(hook)) return undefined
    const answer = await lua.run({ type: 'hook', hook }, input, host, { signal, wallMs: HOOK_MS })
    return answer === undefined || answer === null ? undefined : jsonOf(answer, 'its answer')
  })
}

type Ask = (input: LuaValue, signal: AbortSignal) => Promise<unknown>

const flag = v.exactOptional(v.boolean('must be true or false'))
const text = v.string('must be a string')
const keys = (shape: string) => (issue: v.StrictObjectIssue) =>
  issue.expected === 'never'
    ? 'is not what this event takes'
    : issue.path === undefined
      ? `must be a table like ${shape}`
      : 'is missing'

const BeforeRun = v.strictObject(
  {
    messages: v.exactOptional(
      v.pipe(
        v.unknown(),
        v.transform((given) => (typeof given === 'string' ? [given] : emptyTableAsList(given))),
        v.array(text, 'must be a string or a list of strings'),
      ),
    ),
    system: v.exactOptional(text),
    reject: v.exactOptional(text),
  },
  keys('{ messages = { "…" }, system = "…", reject = "…" }'),
)
const BeforeTool = v.strictObject(
  {
    arguments: v.exactOptional(
      v.custom<JsonObject>(
        (given) => typeof given === 'object' && given !== null && !Array.isArray(given),
        'must be a table of arguments',
      ),
    ),
    block: v.exactOptional(text),
    terminate: flag,
  },
  keys('{ block = "…" } or { arguments = { … } }'),
)
const AfterTool = v.strictObject(
  { text: v.exactOptional(text), is_error: flag, terminate: flag },
  keys('{ text = "…", is_error = true }'),
)
const BeforeRunEnd = v.strictObject({ follow_up: v.exactOptional(text) }, keys('{ follow_up = "…" }'))
const BeforeCompaction = v.strictObject(
  { decline: v.exactOptional(text), summary: v.exactOptional(text) },
  keys('{ decline = "…" } or { summary = "…" }'),
)
const TransformContext = v.strictObject(
  {
    messages: v.exactOptional(
      v.array(
        v.custom<Message>(() => true),
        'must be a list of messages',
      ),
    ),
  },
  keys('{ messages = { … } }'),
)

const about = ({ lane, runId, parent }: HookContext) => ({
  lane,
  run_id: runId,
  ...(parent !== undefined && { parent: { lane: parent.lane, run_id: parent.runId, call_id: parent.toolCallId } }),
})

type Content = Parameters<NonNullable<Hooks['afterTool']>>[0]['content']

/** The text parts of a content, a line's end between them. */
const textOf = (content: Content): string =>
  content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')

/** What a message is for Lua: itself, as plain data. */
const plain = (messages: readonly Message[]): LuaValue => JSON.parse(JSON.stringify(messages))

function hookOf({ event }: HookDeclaration, ask: Ask): Hooks {
  switch (event) {
    case 'before_run':
      return {
        beforeRun: async (input) => {
          const { system, prompt, signal } = input
          const told = { ...about(input), system, ...(prompt && { prompt: textOf(prompt.content) }) }
          return parsed(v.optional(BeforeRun), await ask(told, signal))
        },
      }
    case 'before_tool':
      return {
        beforeTool: async (input) => {
          const { toolCallId, toolName, signal } = input
          const told = { ...about(input), call_id: toolCallId, tool: toolName, arguments: input.arguments }
          const said = parsed(v.optional(BeforeTool), await ask(told, signal))
          if (said?.block !== undefined)
            return { block: said.block, ...(said.terminate !== undefined && { terminate: said.terminate }) }
          return said?.arguments === undefined ? undefined : { arguments: said.arguments }
        },
      }
    case 'after_tool':
      return {
        afterTool: async (input) => {
          const { toolCallId, toolName, content, isError, signal } = input
          const told = {
            ...about(input),
            call_id: toolCallId,
            tool: toolName,
            arguments: input.arguments,
            text: textOf(content),
            images: content.filter(({ type }) => type === 'image').length,
            is_error: isError,
          }
          const said = parsed(v.optional(AfterTool), await ask(told, signal))
          if (said === undefined) return undefined
          const images = content.filter((part) => part.type === 'image')
          return {
            ...(said.text !== undefined && { content: [{ type: 'text', text: said.text }, ...images] }),
            ...(said.is_error !== undefined && { isError: said.is_error }),
            ...(said.terminate !== undefined && { terminate: said.terminate }),
          }
        },
      }
    case 'before_run_end':
      return {
        beforeRunEnd: async (input) => {
          const said = parsed(v.optional(BeforeRunEnd), await ask({ ...about(input), text: input.text }, input.signal))
          return said?.follow_up === undefined ? undefined : { followUp: said.follow_up }
        },
      }
    case 'before_compaction':
      return {
        beforeCompaction: async (input) => {
          const { reason, tokens, previousSummary, messages, signal } = input
          const told = {
            ...about(input),
            reason,
            tokens,
            messages: plain(messages),
            ...(previousSummary !== undefined && { previous_summary: previousSummary }),
          }
          const said = parsed(v.optional(BeforeCompaction), await ask(told, signal))
          if (said?.decline !== undefined) return { decline: said.decline }
          return said?.summary === undefined ? undefined : { summary: said.summary }
        },
      }
    case 'transform_context':
      return {
        transformContext: async (input) => {
          const told = { ...about(input), messages: plain(input.messages) }
          const said = parsed(v.optional(TransformContext), await ask(told, input.signal))
          return said?.messages === undefined ? undefined : { messages: said.messages }
        },
      }
    default:
      return event satisfies never
  }
}
