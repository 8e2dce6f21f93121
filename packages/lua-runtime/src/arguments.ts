import { didYouMean } from '@reve/base'
import type { ToolDeclaration, ToolParam } from './declarations.ts'
import { luaTypeName, type JsonObject, type JsonValue } from './values.ts'

/**
 * The arguments that a tool's body gets: defaults filled in, types and enums checked, unknown ones refused. An argument that
 * is null counts as not given. All problems at once, each naming the tool and the argument. Pure.
 */
export function bindArguments(
  tool: Pick<ToolDeclaration, 'name' | 'params'>,
  args: JsonObject,
): { readonly args: JsonObject } | { readonly problems: readonly string[] } {
  const problems: string[] = []
  const bound: Record<string, JsonValue> = {}
  const names = tool.params.map((param) => param.name)
  for (const name of Object.keys(args)) {
    if (names.includes(name)) continue
    const known = names.length === 0 ? 'it takes none' : `it takes ${names.join(', ')}`
    problems.push(`${tool.name} has no argument "${name}"${didYouMean(name, names)}; ${known}`)
  }
  for (const param of tool.params) {
    const given = (Object.hasOwn(args, param.name) ? args[param.name] : null) ?? null
    const value = given ?? param.default
    if (value === undefined) {
      if (param.required) problems.push(`${tool.name} requires the argument "${param.name}"`)
      continue
    }
    const wrong = checkValue(param, value)
    if (wrong === undefined) bound[param.name] = value
    else problems.push(`${tool.name}: the argument "${param.name}" ${wrong}`)
  }
  return problems.length === 0 ? { args: bound } : { problems }
}

/** Why `value` does not fit the param's type or enum, or undefined. */
export function checkValue(
  param: { readonly type: ToolParam['type']; readonly enum?: ToolParam['enum'] | undefined },
  value: JsonValue,
): string | undefined {
  if (!fits(param.type, value)) return `must be ${names[param.type]}, got ${luaTypeName(value)}`
  if (param.enum === undefined) return undefined
  const text = JSON.stringify(value)
  if (param.enum.some((choice) => JSON.stringify(choice) === text)) return undefined
  const hint =
    typeof value === 'string'
      ? didYouMean(
          value,
          param.enum.filter((choice) => typeof choice === 'string'),
        )
      : ''
  return `must be one of ${param.enum.map((choice) => JSON.stringify(choice)).join(', ')}, got ${luaTypeName(value)}${hint}`
}

const names = {
  string: 'a string',
  integer: 'an integer',
  number: 'a number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
} as const

function fits(type: ToolParam['type'], value: JsonValue): boolean {
  switch (type) {
    case 'string':
    case 'number':
    case 'boolean':
      return typeof value === type
    case 'integer':
      return Number.isSafeInteger(value)
    case 'array':
      return Array.isArray(value)
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value)
    default:
      return type satisfies never
  }
}
