import { expect, test } from 'vitest'
import type { Thinking, ThinkingMap } from '../src/index.ts'
import { anthropicBody } from '../src/anthropic-request.ts'
import { completionsBody } from '../src/completions-request.ts'
import { responsesBody } from '../src/responses-request.ts'
import { ask, config } from './play.ts'

const bodies = (thinking: Thinking, map: ThinkingMap) => {
  const request = { ...ask, thinking }
  const settings = config({ thinking: map, maxTokens: 32_000, modelId: 'claude-3-7-sonnet' })
  return {
    completions: completionsBody(request, settings)['reasoning_effort'],
    responses: responsesBody(request, settings)['reasoning'],
    anthropic: anthropicBody(request, settings)['thinking'],
  }
}

test('a level goes out under the name that the model has for it', () => {
  expect(bodies('high', { high: 'xhigh' })).toEqual({
    completions: 'xhigh',
    responses: { effort: 'xhigh' },
    anthropic: { type: 'adaptive', display: 'summarized' },
  })
})

test('or as a budget, or not at all', () => {
  expect(bodies('low', { low: 9000 })).toEqual({
    completions: 'medium',
    responses: { effort: 'medium' },
    anthropic: { type: 'enabled', budget_tokens: 9000 },
  })
  expect(bodies('off', { off: null })).toEqual({ completions: undefined, responses: undefined, anthropic: undefined })
})

test('a level that the map leaves out is what the API calls it; a budget is of the level that it pays for', () => {
  expect(bodies('medium', { high: 'xhigh' }).completions).toBe('medium')
  expect(bodies(20_000, { high: 'xhigh' }).completions).toBe('xhigh')
})
