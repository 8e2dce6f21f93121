import { dereference } from '@cfworker/json-schema'
import { didYouMean, messageOf } from '@reve/base'
import type { JsonObject, StopReason, ToolCallPart } from '@reve/providers/model'
import { argumentCheck } from './arguments.ts'
import { coerceArguments } from './coerce.ts'
import { HarnessError } from './errors.ts'
import { notStartedNote, truncatedNote } from './notes.ts'
import type { Tool } from './tool.ts'

/** The tools of a run, by name. */
export type Toolbox = ReadonlyMap<string, Tool>

/** What every API may be given as a name; most take less. */
const callable = /^[^\s\p{C}]{1,128}$/u

/**
 * Puts tools in a box. Throws HarnessError `invalid_tools` for a name that is missing, there twice or that no API takes,
 * for a tool that does not say whether it may be run again, and for parameters that are no schema.
 */
export function toolboxOf(tools: readonly Tool[]): Toolbox {
  const box = new Map<string, Tool>()
  for (const tool of tools) {
    const { name, replay, parameters }: { readonly [key in 'name' | 'replay' | 'parameters']: unknown } = tool
    if (typeof name !== 'string' || name === '') {
      throw new HarnessError('invalid_tools', 'a tool has no name', { hint: 'give it one: letters, digits, _ and -' })
    }
    if (!callable.test(name)) {
      throw new HarnessError(
        'invalid_tools',
        `no API takes the name of the tool ${JSON.stringify(name.slice(0, 150))}`,
        {
          hint: 'name it with 1 to 128 characters, none of them a space or a control character',
        },
      )
    }
    if (replay !== 'safe' && replay !== 'never') {
      throw new HarnessError('invalid_tools', `the tool "${tool.name}" does not say whether it may be run again`, {
        hint: 'give it replay: "safe" when it only reads, else "never"',
      })
    }
    if (box.has(tool.name)) throw new HarnessError('invalid_tools', `two tools are named "${tool.name}"`)
    const problem = schemaProblem(parameters)
    if (problem !== undefined) {
      throw new HarnessError(
        'invalid_tools',
        `the parameters of the tool "${tool.name}" are no JSON Schema: ${problem}`,
        {
          hint: 'give it a schema of type "object"; {} takes anything',
        },
      )
    }
    box.set(tool.name, tool)
  }
  return box
}

/** Schemas without a problem: looked at once, however many runs use them. */
const sound = new WeakSet<object>()

/** What of a schema shows to be broken before it checks anything; undefined when nothing does. */
function schemaProblem(parameters: unknown): string | undefined {
  if (typeof parameters !== 'object' || parameters === null || Array.isArray(parameters)) return 'not an object'
  if (sound.has(parameters)) return undefined
  try {
    // A copy as it is sent: looking leaves marks.
    const schemas = dereference(JSON.parse(JSON.stringify(parameters)))
    for (const schema of Object.values(schemas)) {
      if (typeof schema === 'boolean') continue
      const { pattern, patternProperties, __absolute_ref__: ref } = schema
      if (pattern !== undefined) RegExp(pattern, 'u')
      for (const key of Object.keys(patternProperties ?? {})) RegExp(key, 'u')
      if (ref !== undefined && schemas[ref] === undefined) return `nothing is at ${JSON.stringify(schema.$ref)}`
    }
  } catch (error) {
    return messageOf(error).slice(0, 300)
  }
  sound.add(parameters)
  return undefined
}

/** Whether a call may run, and what the model is told if not. */
export type Verdict =
  | { readonly type: 'run'; readonly tool: Tool; readonly arguments: JsonObject }
  | { readonly type: 'refuse'; readonly note: string }

/** Judges one call of an answer. */
export function judge(call: ToolCallPart, stopReason: StopReason, tools: Toolbox, abortRequested: boolean): Verdict {
  if (abortRequested) return { type: 'refuse', note: notStartedNote }
  // Before all else: what was cut off may look whole.
  if (stopReason === 'length') return { type: 'refuse', note: truncatedNote }
  const tool = tools.get(call.name)
  if (tool === undefined) {
    const names = [...tools.keys()]
    return {
      type: 'refuse',
      note: `There is no tool "${call.name}"${didYouMean(call.name, names)}. Tools: ${names.join(', ') || 'none'}.`,
    }
  }
  if ('malformed' in call) {
    return {
      type: 'refuse',
      note: `Not executed: the arguments of "${call.name}" are not a JSON object. They were:\n${call.malformed}`,
    }
  }
  const args = coerceArguments(tool.parameters, call.arguments)
  const problems = argumentCheck(tool)(args)
  return problems === undefined
    ? { type: 'run', tool, arguments: args }
    : { type: 'refuse', note: `Not executed: the arguments of "${call.name}" do not fit its schema.\n${problems}` }
}
