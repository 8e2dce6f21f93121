import type { HarnessEvent, QueuedMessage } from '@reve/harness'
import type { AssistantMessage, JsonObject, ToolResultMessage, Usage } from '@reve/providers/model'
import { partsText, type UiBlock } from './block.ts'
import { countText } from './figures.ts'

/** A call that is being made. `output`: the last lines that it showed. */
export type LiveCall = {
  readonly id: string
  readonly name: string
  readonly arguments: JsonObject
  readonly since: number
  readonly output: readonly string[]
}

/** What a lane is at, as far as a person needs to see it. */
export type LaneState = {
  readonly lane: string
  readonly work: 'idle' | 'run' | 'compaction' | 'recovery'
  /** Milliseconds since 1970, of the operation: a new request or tool does not set it back. */
  readonly since: number
  readonly aborting: boolean
  /** What arrives at the moment. */
  readonly arriving: 'nothing' | 'reasoning' | 'text'
  /** The end of what the model thinks; '' when it does not. */
  readonly reasoning: string
  readonly calls: readonly LiveCall[]
  readonly retry: { readonly attempt: number; readonly until: number } | undefined
  readonly compacting: boolean
  /** Of this run. */
  readonly spent: { readonly input: number; readonly output: number; readonly cost: number }
  /** Tokens that the last request had. */
  readonly context: number | undefined
}

export const idleLane = (lane: string): LaneState => ({
  lane,
  work: 'idle',
  since: 0,
  aborting: false,
  arriving: 'nothing',
  reasoning: '',
  calls: [],
  retry: undefined,
  compacting: false,
  spent: { input: 0, output: 0, cost: 0 },
  context: undefined,
})

/** What an event adds to what is written. */
export type LaneOutput =
  | { readonly type: 'block'; readonly block: UiBlock }
  | { readonly type: 'delta'; readonly text: string }
  /** The answer is complete and this is all of its text. */
  | { readonly type: 'answer'; readonly text: string }
  /** What was shown of the answer does not count. */
  | { readonly type: 'discard' }

export type LaneStep = { readonly state: LaneState; readonly output: readonly LaneOutput[] }

const shownOutput = 200
const shownReasoning = 600

/** All tokens of a request and its answer: what the next one begins with. */
export const contextOf = ({ input, cacheRead, cacheWrite, output }: Usage): number =>
  input + cacheRead + cacheWrite + output

/** An event of a lane, as a change of its state and what is to be written. Pure. `queue`: what waited before it. */
export function laneEvent(
  state: LaneState,
  event: HarnessEvent,
  now: number,
  queue: readonly QueuedMessage[] = [],
): LaneStep {
  const only = (next: LaneState): LaneStep => ({ state: next, output: [] })
  const notice = (next: LaneState, text: string, level: 'info' | 'warning' | 'error'): LaneStep => ({
    state: next,
    output: [{ type: 'block', block: { type: 'notice', text, level } }],
  })
  switch (event.type) {
    case 'run_started':
      return only({ ...idleLane(state.lane), work: 'run', since: now, context: state.context })
    case 'turn_started':
      return only({ ...begun(state, now), arriving: 'nothing', reasoning: '', retry: undefined })
    case 'reasoning': {
      const reasoning = (state.reasoning + event.delta).slice(-shownReasoning)
      return only({ ...begun(state, now), arriving: 'reasoning', reasoning, retry: undefined })
    }
    case 'text':
      return {
        state: { ...begun(state, now), arriving: 'text', reasoning: '', retry: undefined },
        output: [{ type: 'delta', text: event.delta }],
      }
    case 'message':
      return messageStep(state, event, queue)
    case 'tool_started': {
      const { toolCallId: id, toolName: name, arguments: args } = event
      const call: LiveCall = { id, name, arguments: args, since: now, output: [] }
      const known = begun(state, now, 'recovery')
      return only({ ...known, arriving: 'nothing', reasoning: '', calls: [...known.calls, call] })
    }
    case 'tool_progress': {
      const lines = event.text.replace(/\n$/, '').split('\n')
      const calls = state.calls.map((call) =>
        call.id === event.toolCallId ? { ...call, output: [...call.output, ...lines].slice(-shownOutput) } : call,
      )
      return only({ ...state, calls })
    }
    case 'tool_finished': {
      const call = state.calls.find(({ id }) => id === event.toolCallId)
      const { content, isError, interrupted } = event.result
      const block: UiBlock = {
        type: 'tool',
        name: event.toolName,
        arguments: call?.arguments ?? {},
        content,
        state: interrupted ? 'unknown' : isError ? 'failed' : 'ok',
        ...(call && { ms: now - call.since }),
      }
      const calls = state.calls.filter(({ id }) => id !== event.toolCallId)
      return { state: { ...state, calls }, output: [{ type: 'block', block }] }
    }
    case 'retry': {
      const next = {
        ...begun(state, now),
        arriving: 'nothing',
        reasoning: '',
        retry: { attempt: event.attempt, until: now + event.delayMs },
      } as const
      const step = notice(
        next,
        `${event.error.message}; trying again in ${(event.delayMs / 1000).toFixed(1)} s`,
        'warning',
      )
      return event.discard ? { ...step, output: [{ type: 'discard' }, ...step.output] } : step
    }
    case 'usage': {
      const { usage, cost } = event
      const spent = {
        input: state.spent.input + usage.input + usage.cacheRead + usage.cacheWrite,
        output: state.spent.output + usage.output,
        cost: state.spent.cost + (cost ?? 0),
      }
      return only({ ...state, spent, context: state.compacting ? state.context : contextOf(usage) })
    }
    case 'abort_requested':
      return only({ ...state, aborting: true })
    case 'compaction_started':
      return only({ ...begun(state, now, 'compaction'), compacting: true })
    case 'compaction_finished': {
      const work = state.work === 'compaction' ? 'idle' : state.work
      const context = event.outcome === 'completed' ? event.tokensAfter : state.context
      const [text, level] = compactionText(event)
      return notice({ ...state, work, compacting: false, aborting: false, context }, text, level)
    }
    case 'run_finished':
      return finishedStep(state, event)
    case 'recovered':
      return only({ ...idleLane(state.lane), context: state.context })
    case 'hook_failed':
      return notice(state, `the hook ${event.hook} failed: ${event.message}`, 'warning')
    case 'listener_failed':
      return notice(state, `an observer failed: ${event.message}`, 'warning')
    case 'log_faulted':
      return notice(
        { ...idleLane(state.lane), context: state.context },
        `the session can not be written any more: ${event.message}. What is above the last line is safe; start reve again.`,
        'error',
      )
    case 'queued':
    case 'navigated':
      return only(state)
    default:
      return event satisfies never
  }
}

/** The same, at work: for who came in the middle. */
function begun(state: LaneState, now: number, work: 'run' | 'recovery' | 'compaction' = 'run'): LaneState {
  return state.work === 'idle' ? { ...state, work, since: now } : state
}

function messageStep(
  state: LaneState,
  { message, entryId }: HarnessEvent & { readonly type: 'message' },
  queue: readonly QueuedMessage[],
): LaneStep {
  switch (message.role) {
    case 'user': {
      const as = queue.find((queued) => queued.entryId === entryId)?.delivery
      const block: UiBlock = { type: 'user', text: partsText(message.content), ...(as && { as }) }
      return { state, output: [{ type: 'block', block }] }
    }
    case 'assistant': {
      const next: LaneState = { ...state, arriving: 'nothing', reasoning: '' }
      return { state: next, output: [{ type: 'answer', text: answerText(message) }] }
    }
    case 'toolResult': {
      const isNew = state.work === 'run' && !state.calls.some(({ id }) => id === message.toolCallId)
      if (!isNew) return { state, output: [] }
      return { state, output: notRun(message) }
    }
    default:
      return message satisfies never
  }
}

/** A result of a call that never began: no `tool_finished` follows. */
function notRun({ toolName: name, content, interrupted }: ToolResultMessage): readonly LaneOutput[] {
  const state = interrupted ? 'unknown' : 'not_run'
  return [{ type: 'block', block: { type: 'tool', name, arguments: {}, content, state } }]
}

/** The text of an answer; the parts as they follow each other. */
export const answerText = (message: AssistantMessage): string =>
  message.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('')

function finishedStep(
  state: LaneState,
  { outcome, reason }: HarnessEvent & { readonly type: 'run_finished' },
): LaneStep {
  const next: LaneState = { ...idleLane(state.lane), spent: state.spent, context: state.context }
  const say = (text: string, level: 'info' | 'warning' | 'error'): LaneStep => ({
    state: next,
    output: [{ type: 'block', block: { type: 'notice', text, level } }],
  })
  switch (outcome) {
    case 'completed':
      return reason === 'length'
        ? say('the answer was cut: it reached the longest that the model may write', 'warning')
        : { state: next, output: [] }
    case 'aborted':
      return say('interrupted; what was done is kept', 'warning')
    // The run's own promise says why.
    case 'failed':
    case 'rejected':
      return { state: next, output: [] }
    default:
      return outcome satisfies never
  }
}

function compactionText(
  event: HarnessEvent & { readonly type: 'compaction_finished' },
): readonly [string, 'info' | 'warning' | 'error'] {
  switch (event.outcome) {
    case 'completed':
      return [
        `the older part of the conversation is a summary now: ${countText(event.tokensBefore)} → ${countText(event.tokensAfter ?? 0)} tokens`,
        'info',
      ]
    case 'aborted':
      return ['the summary was interrupted; the conversation is as it was', 'info']
    case 'failed':
      return [`there is no summary: ${event.error?.message ?? 'it failed'}; the conversation is as it was`, 'error']
    case 'declined':
      return ['a hook declined the summary', 'info']
    default:
      return event.outcome satisfies never
  }
}
