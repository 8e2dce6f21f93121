import { describeIssues } from '@reve/base'
import type { Tool, ToolContext, ToolOutput } from '@reve/harness'
import type { JsonObject } from '@reve/providers/model'
import * as v from 'valibot'

/** An error result for the model: it reads the text and decides what to do. */
export const failed = (text: string): ToolOutput => ({ content: text, isError: true })

type Builtin<Schema extends v.GenericSchema> = {
  readonly name: string
  readonly description: string
  readonly replay: Tool['replay']
  /** JSON Schema of each argument, as the model sees it. */
  readonly parameters: JsonObject
  readonly required: readonly string[]
  /** The same arguments as a typed value. */
  readonly schema: Schema
  readonly run: (args: v.InferOutput<Schema>, context: ToolContext) => Promise<ToolOutput>
}

/** A built-in tool: its arguments reach the body as a typed value, with defaults filled in. */
export function builtin<Schema extends v.GenericSchema>(tool: Builtin<Schema>): Tool {
  return {
    name: tool.name,
    description: tool.description,
    replay: tool.replay,
    parameters: { type: 'object', properties: tool.parameters, required: tool.required, additionalProperties: false },
    run: async (args, context) => {
      const parsed = v.safeParse(tool.schema, args)
      if (parsed.success) return tool.run(parsed.output, context)
      const issues = describeIssues(parsed.issues).map(({ path, message }) => `${path || 'arguments'}: ${message}`)
      return failed(`${tool.name}: ${issues.join('; ')}`)
    },
  }
}
