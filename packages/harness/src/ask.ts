import { messageOf } from '@reve/base'
import type { AssistantMessage, Model, ModelEvent, ModelOutcome, ModelRequest } from '@reve/providers/model'
import * as v from 'valibot'
import { withGrace } from './grace.ts'
import { assistantMessageSchema, usageSchema } from './messages.ts'
import type { Effects } from './options.ts'

/**
 * One request to a model, brought to its one end. A model that throws, or that claims an abort nobody asked for, has
 * failed; one that does not end after an abort is left, and what it had said until then is the partial answer.
 */
export async function ask(
  model: Model,
  request: ModelRequest,
  options: {
    readonly signal: AbortSignal
    readonly graceMs: number
    readonly sleep: Effects['sleep']
    readonly onEvent: (event: ModelEvent) => void
  },
): Promise<ModelOutcome> {
  const { signal } = options
  let text = ''
  let shown = false
  let over = false

  async function read(): Promise<ModelOutcome> {
    try {
      const stream = model.stream(request, { signal })
      for (;;) {
        const next = await stream.next()
        if (next.done === true) return next.value
        if (over) return partial()
        shown = true
        if (next.value.type === 'text') text += next.value.delta
        options.onEvent(next.value)
      }
    } catch (error) {
      const failure = { code: 'protocol', message: `${model.id}: ${messageOf(error)}`, retryable: false } as const
      return { type: 'failed', failure, outputShown: shown }
    }
  }

  const partial = (): ModelOutcome => ({
    type: 'aborted',
    partial: {
      role: 'assistant',
      model: model.id,
      content: text === '' ? [] : [{ type: 'text', text }],
      stopReason: 'aborted',
    },
  })

  const failed = (problem: string): ModelOutcome => ({
    type: 'failed',
    failure: { code: 'protocol', message: `${model.id}: ${problem}`, retryable: false },
    outputShown: shown,
  })

  const ended = await withGrace(read(), signal, options.graceMs, options.sleep)
  over = true
  if (ended.type === 'left') return partial()
  const outcome = withGoodUsage(ended.value)
  // A connection that broke because we cut it is no failure of the server.
  if (outcome.type === 'failed' && signal.aborted) return partial()
  if (outcome.type === 'aborted' && !signal.aborted) {
    return failed('the answer ended as aborted, and nobody had asked for that')
  }
  // The trust edge to a model of any make: what is kept has to be readable for ever.
  const problem =
    outcome.type === 'failed' ? undefined : problemOf(outcome.type === 'answer' ? outcome.message : outcome.partial)
  if (problem !== undefined) return outcome.type === 'aborted' ? partial() : failed(`the answer is none: ${problem}`)
  return outcome
}

function problemOf(message: AssistantMessage): string | undefined {
  const read = v.safeParse(assistantMessageSchema, message, { abortEarly: true })
  if (read.success) return undefined
  const issue = read.issues[0]
  return `${v.getDotPath(issue) ?? 'message'}: ${issue.message}`.slice(0, 300)
}

/** Of a failure, too, only usage that can be kept and added up. */
function withGoodUsage(outcome: ModelOutcome): ModelOutcome {
  if (outcome.type !== 'failed' || outcome.usage === undefined || v.is(usageSchema, outcome.usage)) return outcome
  const { usage: _nonsense, ...rest } = outcome
  return rest
}
