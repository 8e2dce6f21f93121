import { messageOf, sanitiseLine } from '@reve/base'
import type { JsonObject } from '@reve/providers/model'
import * as v from 'valibot'
import { UsageError } from '../arguments.ts'
import { agentHere, type Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'

const JsonObjectSchema = v.custom<JsonObject>(
  (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
)

/** `reve tool [name] [--args JSON]` */
export async function tool(
  context: Context,
  options: { readonly name: string | undefined; readonly args: string; readonly json: boolean },
): Promise<number> {
  const { output, signal } = context
  const args = parseObject(options.args)
  await using agent = await agentHere(context)
  if (options.name === undefined) {
    if (options.json) {
      output.result(JSON.stringify(agent.info.tools))
      return exitCode.done
    }
    const rows = agent.info.tools.map(({ name, description }) => `${name.padEnd(20)} ${sanitiseLine(description)}`)
    if (rows.length > 0) output.result(rows.join('\n'))
    else output.note('this agent has no Lua tools; add a file to tools/')
    return exitCode.done
  }
  const text = await agent.runTool(options.name, args, { signal })
  output.result(options.json ? JSON.stringify({ tool: options.name, text }) : text)
  return exitCode.done
}

function parseObject(text: string): JsonObject {
  const value = ((): unknown => {
    try {
      return JSON.parse(text)
    } catch (error) {
      throw new UsageError(`--args is not JSON: ${messageOf(error)}`, 'tool')
    }
  })()
  const parsed = v.safeParse(JsonObjectSchema, value)
  if (!parsed.success) throw new UsageError('--args must be a JSON object, such as \'{"commits":2}\'', 'tool')
  return parsed.output
}
