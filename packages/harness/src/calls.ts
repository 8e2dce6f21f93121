import { didYouMean } from '@reve/base'
import type { JsonObject, StopReason, ToolCallPart } from '@reve/providers/model'
import { argumentCheck } from './arguments.ts'
import { coerceArguments } from './coerce.ts'
import { HarnessError } from './errors.ts'
import { notStartedNote, truncatedNote } from './notes.ts'
import type { Tool } from './tool.ts'

/** The tools of a run, by name. */
export type Toolbox = ReadonlyMap<string, Tool>

/** Puts tools in a box. Throws HarnessError `invalid_tools` for a name that is missing or there twice. */
export function toolboxOf(tools: readonly Tool[]): Toolbox {
  const box = new Map<string, Tool>()
  for (const tool of tools) {
    if (tool.name === '') throw new HarnessError('invalid_tools', 'a tool has no name')
    const { replay }: { readonly replay: unknown } = tool
    if (replay !== 'safe' && replay !== 'never') {
      throw new HarnessError('invalid_tools', `the tool "${tool.name}" does not say whether it may be run again`, {
        hint: 'give it replay: "safe" when it only reads, else "never"',
      })
    }
    if (box.has(tool.name)) throw new HarnessError('invalid_tools', `two tools are named "${tool.name}"`)
    box.set(tool.name, tool)
  }
  return box
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
