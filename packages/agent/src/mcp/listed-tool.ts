import { describeIssues } from '@reve/base'
import type { JsonObject } from '@reve/providers/model'
import * as v from 'valibot'
import { plainText } from './text.ts'
import { toolNames } from './tool-names.ts'
import { toolSchema } from './tool-schema.ts'

/** A tool that a server lists, as it is offered to a model. */
export type ListedTool = {
  /** The name under which it is offered. */
  readonly name: string
  /** The server's own name for it. */
  readonly remote: string
  readonly description: string
  readonly parameters: JsonObject
  /** What the server sent as the schema: how arguments travel may depend on it. */
  readonly inputSchema: { readonly type: 'object' }
  readonly replay: 'safe' | 'never'
}

/** The tools of a server by the names that are offered, and what is wrong with the others. */
export type Listed = { readonly tools: readonly ListedTool[]; readonly problems: readonly string[] }

/** More of one server's tools than these leave no room for the conversation. */
export const mostTools = 200
const describedCharacters = 4000

const Remote = v.object(
  {
    name: v.pipe(v.string('must be text'), v.nonEmpty('must not be empty'), v.maxLength(256, 'is too long')),
    description: v.fallback(v.optional(v.string(), ''), ''),
    inputSchema: v.looseObject({ type: v.literal('object', 'must be "object"') }, 'must be a JSON Schema'),
    annotations: v.fallback(
      v.optional(v.object({ readOnlyHint: v.fallback(v.optional(v.boolean()), undefined) })),
      undefined,
    ),
    execution: v.fallback(v.optional(v.object({ taskSupport: v.optional(v.string()) })), undefined),
  },
  (issue) => ((issue.expected ?? '').startsWith('"') ? 'is missing' : 'is no object'),
)

/**
 * What a server says that its tools are, made fit: one that is wrong hides no other. Only one that says of itself that it does nothing
 * but read may be called again after a crash.
 */
export function listedTools(server: string, items: readonly unknown[]): Listed {
  const problems: string[] = []
  const remotes = items.slice(0, mostTools).flatMap((item, index) => {
    const read = v.safeParse(Remote, item)
    if (!read.success) {
      const [issue] = describeIssues(read.issues)
      problems.push(`its tool ${index + 1} is left out: ${issue?.path || 'it'} ${issue?.message ?? 'is wrong'}`)
      return []
    }
    if (read.output.execution?.taskSupport === 'required') {
      problems.push(`its tool "${plainText(read.output.name, 60)}" is left out: it runs as a task only`)
      return []
    }
    return [read.output]
  })
  if (items.length > mostTools) problems.push(`only the first ${mostTools} of its ${items.length} tools are offered`)
  const byName = new Map(remotes.toReversed().map((remote) => [remote.name, remote]))
  const names = toolNames(
    server,
    remotes.map(({ name }) => name),
  )
  const tools = [...names].flatMap(([name, own]): ListedTool[] => {
    const remote = byName.get(own)
    if (remote === undefined) return []
    const description = plainText(remote.description, describedCharacters)
    return [
      {
        name,
        remote: own,
        description: description === '' ? `${plainText(own, 100)}, of the MCP server ${server}` : description,
        parameters: toolSchema(remote.inputSchema),
        inputSchema: remote.inputSchema,
        replay: remote.annotations?.readOnlyHint === true ? 'safe' : 'never',
      },
    ]
  })
  // A server may list them in any order; a provider's cache holds only for the same bytes.
  return { tools: tools.toSorted((a, b) => (a.name < b.name ? -1 : 1)), problems }
}
