import { Validator } from '@cfworker/json-schema'
import { messageOf } from '@reve/base'
import type { JsonObject } from '@reve/providers/model'
import type { Tool } from './tool.ts'

/** Why arguments may not reach a tool: every problem with its JSON pointer; undefined when they fit. */
export type ArgumentCheck = (args: JsonObject) => string | undefined

const shownProblems = 8
// These only say that something below them is wrong, which is said there.
const frames: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  'items',
  'prefixItems',
  '$ref',
  'allOf',
  'if',
  'dependentSchemas',
  'false',
])
const checks = new WeakMap<Tool, ArgumentCheck>()

/** The check of a tool's JSON Schema (draft 7, 2019-09 or 2020-12 by its `$schema`, else 2020-12). */
export function argumentCheck(tool: Tool): ArgumentCheck {
  const known = checks.get(tool)
  if (known !== undefined) return known
  const check = compile(tool)
  checks.set(tool, check)
  return check
}

function compile(tool: Tool): ArgumentCheck {
  const broken = (error: unknown) => `the schema of tool "${tool.name}" is broken: ${messageOf(error)}`
  let validator: Validator
  try {
    validator = new Validator(tool.parameters, draftOf(tool.parameters['$schema']), false)
  } catch (error) {
    return () => broken(error)
  }
  return (args) => {
    try {
      const result = validator.validate(args)
      return result.valid ? undefined : describe(result.errors)
    } catch (error) {
      // A reference or a pattern that is wrong is only found here.
      return broken(error)
    }
  }
}

function draftOf(schema: unknown): '7' | '2019-09' | '2020-12' {
  if (typeof schema !== 'string') return '2020-12'
  return schema.includes('draft-07') ? '7' : schema.includes('2019-09') ? '2019-09' : '2020-12'
}

function describe(errors: ReturnType<Validator['validate']>['errors']): string {
  const leaves = errors.filter(({ keyword }) => !frames.has(keyword))
  const problems = (leaves.length > 0 ? leaves : errors).map(
    ({ instanceLocation, error }) => `${instanceLocation.slice(1) || '/'}: ${error}`,
  )
  const more = problems.length - shownProblems
  return [...problems.slice(0, shownProblems), ...(more > 0 ? [`and ${more} more`] : [])].join('\n')
}
