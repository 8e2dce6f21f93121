import type { ImagePart, JsonObject, Model, TextPart, UserMessage } from '@reve/providers/model'
import * as v from 'valibot'
import { contentSchema } from './messages.ts'
import type { RunResult } from './run.ts'

/**
 * Something that a model may have done. `replay` says what recovery may do with a call whose result a crash took away:
 * `safe` (reading only) may run it again with the recorded arguments, `never` may not.
 */
export type Tool = {
  readonly name: string
  readonly description: string
  /** JSON Schema of type `object`; arguments that do not fit never reach `run`. */
  readonly parameters: JsonObject
  readonly replay: 'safe' | 'never'
  /** What it throws becomes an error result for the model. It must end soon after `context.signal` aborts. */
  run(args: JsonObject, context: ToolContext): Promise<ToolOutput>
}

/** What a running tool knows of the call that it serves. */
export type ToolContext = {
  readonly signal: AbortSignal
  readonly lane: string
  readonly runId: string
  readonly toolCallId: string
  /** The same for a call and its replay, and for no other: the id of the result entry. */
  readonly idempotencyKey: string
  /** Shows a line to whoever watches; it is not kept. */
  readonly progress: (text: string) => void
  /**
   * Runs another agent on a lane of its own and resolves with its end, whatever it is. It is aborted with this call, its
   * records name this call, and what it spends counts for this run. Rejects as `Harness.prompt` does, and with
   * `too_deep` when sub-agents call sub-agents more than `limits.subagentDepth` deep.
   */
  readonly subagent: (message: string | UserMessage, options?: SubagentOptions) => Promise<RunResult>
}

/** How a sub-agent differs from the agent that calls it. */
export type SubagentOptions = RunOverrides & {
  /** Default: a lane of its own for this call, `sub-` and the call's `idempotencyKey`. */
  readonly lane?: string
  /** The entry that its conversation goes on from; default: the lane's leaf, nothing for a new lane. */
  readonly from?: string | null
}

/** What one run may have in place of the harness's own. */
export type RunOverrides = {
  readonly model?: Model
  readonly tools?: readonly Tool[]
  readonly system?: string
  /** Default: `limits.maxTurns`. */
  readonly maxTurns?: number
}

/** What a tool gives back. `terminate`: when all results of an answer say so, the run ends without asking the model again. */
export type ToolOutput = {
  readonly content: string | readonly (TextPart | ImagePart)[]
  readonly isError?: boolean
  readonly terminate?: boolean
}

/** The trust edge to a tool's body. */
export const toolOutputSchema: v.GenericSchema<unknown, ToolOutput> = v.object({
  content: v.union([v.string(), contentSchema]),
  isError: v.exactOptional(v.boolean()),
  terminate: v.exactOptional(v.boolean()),
})
