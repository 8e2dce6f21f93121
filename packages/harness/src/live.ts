import type { JsonObject } from '@reve/providers/model'
import type { HarnessEvent } from './events.ts'
import type { CompactionReason } from './records.ts'

/** A call that is being made. `progress` is the last thing that the tool showed. */
export type LiveTool = {
  readonly toolCallId: string
  readonly toolName: string
  readonly arguments: JsonObject
  readonly progress?: string
}

/** What goes on in a lane and is not (yet) in the log: what somebody who comes late cannot read there. */
export type LiveLane = {
  readonly lane: string
  readonly runId: string
  readonly operation: 'run' | 'compaction' | 'recovery'
  /** The call that this run serves: it is a sub-agent's. */
  readonly parent?: { readonly lane: string; readonly runId: string; readonly toolCallId: string }
  /** Answers asked for so far. */
  readonly step: number
  /** Of the answer that is being written; '' when none is. */
  readonly text: string
  readonly reasoning: string
  readonly tools: readonly LiveTool[]
  /** While the conversation is summarised, alone or within a run; `tokens` is what it had. */
  readonly compaction?: { readonly reason: CompactionReason; readonly tokens: number }
  /** From a failed request to the first sign of the next one. */
  readonly retry?: {
    readonly attempt: number
    readonly delayMs: number
    readonly error: { readonly code: string; readonly message: string }
  }
  readonly aborting: boolean
}

/** Lanes in which something goes on, by name. */
export type Live = ReadonlyMap<string, LiveLane>

/** Nothing goes on. */
export const noLive: Live = new Map()

/** What goes on after an event. Pure; the events of a lane are taken in their order, from its run's start. */
export function applyEvent(live: Live, event: HarnessEvent): Live {
  const known = live.get(event.lane)
  switch (event.type) {
    case 'run_started':
      return put(live, { ...opened(event, 'run'), ...(event.parent !== undefined && { parent: event.parent }) })
    case 'turn_started':
      return put(live, { ...answerless(known ?? opened(event, 'run')), step: event.step })
    case 'text': {
      const lane = retried(known ?? opened(event, 'run'))
      return put(live, { ...lane, text: lane.text + event.delta })
    }
    case 'reasoning': {
      const lane = retried(known ?? opened(event, 'run'))
      return put(live, { ...lane, reasoning: lane.reasoning + event.delta })
    }
    case 'message':
      // The answer is in the log from here on.
      return known !== undefined && event.message.role === 'assistant' ? put(live, answerless(known)) : live
    case 'tool_started': {
      // Without a run, it is recovery that makes the call again.
      const lane = known ?? opened(event, 'recovery')
      const { toolCallId, toolName, arguments: args } = event
      return put(live, { ...lane, tools: [...lane.tools, { toolCallId, toolName, arguments: args }] })
    }
    case 'tool_progress': {
      if (known === undefined) return live
      const tools = known.tools.map((tool) =>
        tool.toolCallId === event.toolCallId ? { ...tool, progress: event.text } : tool,
      )
      return put(live, { ...known, tools })
    }
    case 'tool_finished': {
      if (known === undefined) return live
      return put(live, { ...known, tools: known.tools.filter(({ toolCallId }) => toolCallId !== event.toolCallId) })
    }
    case 'retry': {
      const lane = known ?? opened(event, 'run')
      const { attempt, delayMs, error } = event
      return put(live, { ...(event.discard ? answerless(lane) : lane), retry: { attempt, delayMs, error } })
    }
    case 'abort_requested':
      return known === undefined ? live : put(live, { ...known, aborting: true })
    case 'compaction_started': {
      const { reason, tokens } = event
      return put(live, { ...(known ?? opened(event, 'compaction')), compaction: { reason, tokens } })
    }
    case 'compaction_finished': {
      if (known === undefined) return live
      const { compaction: _over, ...lane } = retried(known)
      return lane.operation === 'compaction' ? without(live, lane.lane) : put(live, lane)
    }
    case 'run_finished':
    case 'recovered':
      return without(live, event.lane)
    case 'log_faulted':
      return noLive
    case 'queued':
    case 'usage':
    case 'navigated':
    case 'hook_failed':
    case 'listener_failed':
      return live
    default:
      return event satisfies never
  }
}

/** The same without that lane: for an operation that ends with no event, because its log took no more. */
export function without(live: Live, lane: string): Live {
  if (!live.has(lane)) return live
  const rest = new Map(live)
  rest.delete(lane)
  return rest
}

function put(live: Live, lane: LiveLane): Live {
  return new Map(live).set(lane.lane, lane)
}

function opened({ lane, runId }: HarnessEvent, operation: LiveLane['operation']): LiveLane {
  return { lane, runId, operation, step: 0, text: '', reasoning: '', tools: [], aborting: false }
}

function answerless(lane: LiveLane): LiveLane {
  return { ...retried(lane), text: '', reasoning: '' }
}

function retried(lane: LiveLane): LiveLane {
  const { retry: _over, ...rest } = lane
  return rest
}
