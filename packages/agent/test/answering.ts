import type { AssistantMessage, Model, ModelRequest } from '@reve/providers/model'

/** A model that answers by a function of what it is asked. */
export function answering(
  answer: (request: ModelRequest, signal: AbortSignal) => Promise<string> | string,
  stopReason: 'stop' | 'length' = 'stop',
): Model {
  return {
    id: 'test/answering',
    contextWindow: 1_000_000,
    maxTokens: 1000,
    async *stream(request, { signal }) {
      const text = await answer(request, signal)
      const content: AssistantMessage['content'] = text === '' ? [] : [{ type: 'text', text }]
      const message = { role: 'assistant', model: 'test/answering', content } as const
      if (signal.aborted) return { type: 'aborted', partial: { ...message, stopReason: 'aborted' } }
      yield { type: 'text', delta: text }
      return { type: 'answer', message: { ...message, stopReason } }
    },
  }
}
