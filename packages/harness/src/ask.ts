import { messageOf } from '@reve/base'
import type { Model, ModelEvent, ModelOutcome, ModelRequest } from '@reve/providers/model'
import { withGrace } from './grace.ts'
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

  const ended = await withGrace(read(), signal, options.graceMs, options.sleep)
  over = true
  if (ended.type === 'left') return partial()
  const outcome = ended.value
  // A connection that broke because we cut it is no failure of the server.
  if (outcome.type === 'failed' && signal.aborted) return partial()
  if (outcome.type === 'aborted' && !signal.aborted) {
    const message = `${model.id}: the answer ended as aborted, and nobody had asked for that`
    return { type: 'failed', failure: { code: 'protocol', message, retryable: false }, outputShown: shown }
  }
  return outcome
}
