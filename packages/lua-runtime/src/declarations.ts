import type { LuaIssue } from './errors.ts'
import type { JsonObject, JsonValue, LuaValue } from './values.ts'

/** A Lua file: its text and the name that errors show, for example `tools/example.lua`. */
export type LuaSource = { readonly file: string; readonly source: string }

/** The files of one agent. They are loaded in this order, and lists in the given one; each file has its own globals. */
export type LuaSources = {
  /** `agent{}`, `on()`, `command()` */
  readonly agent?: LuaSource
  /** `sandbox{}` */
  readonly sandbox?: LuaSource
  /** `tool()`, `on()`, `command()` */
  readonly tools?: readonly LuaSource[]
  /** `channel{}`; a channel has the name of its file, `channels/<name>.lua`. */
  readonly channels?: readonly LuaSource[]
  /** What the others may `require`: `tools/lib/http/client.lua` is `http.client`. A module runs when it is first required. */
  readonly lib?: readonly LuaSource[]
}

/** A place in a Lua file; `line` counts from 1. */
export type Position = { readonly file: string; readonly line: number }

/**
 * A value that a script gave with `agent{}` or `sandbox{}`, unchecked, and where the call stands. `lines` has the line
 * of each key that is written out in the call, by its path (`secrets/0/hosts`): see `positionOf`.
 */
export type Declared = {
  readonly value: LuaValue
  readonly at: Position
  readonly lines: Readonly<Record<string, number>>
}

export type ToolParamType = 'string' | 'integer' | 'number' | 'boolean' | 'array' | 'object'

/** One parameter of a tool, checked. */
export type ToolParam = {
  readonly name: string
  readonly type: ToolParamType
  readonly description?: string
  readonly required: boolean
  readonly default?: JsonValue
  readonly enum?: readonly JsonValue[]
}

/** A tool, checked. `schema` is the JSON Schema of its arguments (`additionalProperties: false`). */
export type ToolDeclaration = {
  readonly name: string
  readonly description: string
  readonly replay: 'safe' | 'never'
  readonly params: readonly ToolParam[]
  readonly schema: JsonObject
  readonly at: Position
}

/** What people type: `/deploy staging` calls the command `deploy` with `staging`. */
export type CommandDeclaration = {
  readonly name: string
  readonly description: string
  /** How its arguments are shown in a list: `<host> [branch]`. */
  readonly args?: string
  readonly at: Position
}

/** The events that `on` takes. */
export const hookEvents = [
  'before_run',
  'before_tool',
  'after_tool',
  'before_run_end',
  'before_compaction',
  'transform_context',
] as const
export type HookEvent = (typeof hookEvents)[number]

/** A function that `on(event, …)` was given; `index` is its place among all of them. */
export type HookDeclaration = { readonly event: HookEvent; readonly index: number; readonly at: Position }

/** A way in which others reach the agent, of `channels/<name>.lua`. */
export type ChannelDeclaration = {
  readonly name: string
  /** Milliseconds between two looks, at least 1,000. */
  readonly everyMs: number
  readonly canReply: boolean
  readonly at: Position
}

/** What the files declared. `warnings` are worth showing and stop nothing. */
export type LuaProgram = {
  readonly agent?: Declared
  readonly sandbox?: Declared
  readonly tools: readonly ToolDeclaration[]
  readonly commands: readonly CommandDeclaration[]
  /** In the order in which they were declared, which is the one in which they are called. */
  readonly hooks: readonly HookDeclaration[]
  readonly channels: readonly ChannelDeclaration[]
  readonly warnings: readonly LuaIssue[]
}

/** The position of the key at `path` (`secrets/0/env`, as valibot counts), else of the nearest key above it, else of the call. */
export function positionOf(declared: Declared, path: string): Position {
  for (let rest = path; rest !== ''; rest = rest.includes('/') ? rest.slice(0, rest.lastIndexOf('/')) : '') {
    const line = Object.hasOwn(declared.lines, rest) ? declared.lines[rest] : undefined
    if (line !== undefined) return { file: declared.at.file, line }
  }
  return declared.at
}
