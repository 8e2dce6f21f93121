import type { LuaIssue } from './errors.ts'
import type { JsonObject, JsonValue, LuaValue } from './values.ts'

/** A Lua file: its text and the name that errors show, for example `tools/example.lua`. */
export type LuaSource = { readonly file: string; readonly source: string }

/** The files of one agent. Tools are loaded in the given order; each file has its own globals. */
export type LuaSources = {
  readonly agent?: LuaSource
  readonly sandbox?: LuaSource
  readonly tools?: readonly LuaSource[]
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

/** What the files declared. `warnings` are worth showing and stop nothing. */
export type LuaProgram = {
  readonly agent?: Declared
  readonly sandbox?: Declared
  readonly tools: readonly ToolDeclaration[]
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
