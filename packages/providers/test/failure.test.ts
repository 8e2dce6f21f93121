import { describe, expect, test } from 'vitest'
import { failureOf } from '../src/failure.ts'
import { overflowWordings, saysOverflow } from '../src/overflow.ts'
import { retryAfter } from '../src/retry-after.ts'
import { effortOf } from '../src/thinking.ts'

const context = { provider: 'p', modelId: 'm', url: 'http://h/v1' }

/** What each vendor really says, one text a row of the table, in its order. */
const said: readonly string[] = [
  'context_length_exceeded',
  "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
  'Your input exceeds the context window of this model. Please adjust your input and try again.',
  'prompt is too long: 213462 tokens > 200000 maximum',
  'input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000',
  'request_too_large: Request exceeds the maximum size',
  'ValidationException: Input is too long for requested model.',
  'The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).',
  "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
  'Please reduce the length of the messages or completion.',
  'exceed_context_size_error',
  'the request exceeds the available context size, try increasing it',
  'The number of tokens is greater than the context length of the model',
  'The number of tokens to keep from the initial prompt is greater than the context length',
  'The decoder prompt (length 5000) is longer than the maximum model length of 4096.',
  'Your request exceeded model token limit: 262144 (requested: 300000)',
  'invalid params, context window exceeds limit',
  'Prompt contains 40000 tokens, too large for model with 32768 maximum context length',
  "This endpoint's maximum context length is 131072 tokens.",
  'input exceeds the maximum context length',
  'too many tokens in the prompt',
  'Context window exceeded',
]

describe('overflow', () => {
  test.each(overflowWordings.map((row, index) => ({ ...row, text: said[index] ?? '' })))(
    '$vendor: $text',
    ({ pattern, text }) => {
      expect(text).toMatch(pattern)
      expect(failureOf({ status: 400, message: text }, context)).toMatchObject({ code: 'overflow', retryable: false })
    },
  )
  test('a limit of the rate, an id with digits, and other words are none', () => {
    expect(
      failureOf(
        { status: 429, message: 'Number of input tokens exceeds the maximum number of tokens per minute' },
        context,
      ).code,
    ).toBe('rate_limited')
    for (const text of ['request req_413_529 failed', 'max_tokens must be at least 1', 'unknown field context'])
      expect(saysOverflow(text)).toBe(false)
  })
})

describe('classes', () => {
  test('digits in the text do not decide', () => {
    expect(failureOf({ status: 400, message: 'bad request id 429-503-overloaded' }, context)).toMatchObject({
      code: 'bad_request',
      retryable: false,
    })
  })
  test('an error without any words', () => {
    expect(failureOf({ status: 500, message: '' }, context).message).toMatch(/^p\/m: HTTP 500\. /)
    expect(failureOf({ message: ' ' }, context).message).toMatch(/^p\/m: an error without a message\. /)
  })
  test('a long text is cut, never within a character', () => {
    const { message } = failureOf({ status: 500, message: '🌍'.repeat(5000) }, context)
    expect(message.length).toBeLessThan(5000)
    expect(message.isWellFormed()).toBe(true)
  })
  test('gateways', () => {
    for (const status of [500, 502, 504, 520, 524, 409])
      expect(failureOf({ status, message: 'x' }, context)).toMatchObject({ code: 'server', retryable: true })
    expect(failureOf({ status: 408, message: 'x' }, context)).toMatchObject({ code: 'timeout', retryable: true })
    expect(
      failureOf({ status: 429, message: 'You have reached your usage limit, resets tomorrow' }, context),
    ).toMatchObject({ code: 'quota', retryable: false })
    expect(
      failureOf(
        { status: 400, type: 'invalid_request_error', message: 'Your credit balance is too low to access the API.' },
        context,
      ),
    ).toMatchObject({ code: 'quota' })
  })
})

test('Retry-After', () => {
  const at = Date.UTC(2030, 0, 1)
  const wait = (headers: Readonly<Record<string, string>>) => retryAfter(new Headers(headers), at)
  expect(wait({ 'retry-after': '1.5' })).toBe(1500)
  expect(wait({ 'retry-after': '60', 'retry-after-ms': '250' })).toBe(250)
  expect(wait({ 'retry-after': 'Tue, 01 Jan 2030 00:01:00 GMT' })).toBe(60_000)
  expect(wait({ 'retry-after': 'Mon, 31 Dec 2029 00:00:00 GMT' })).toBe(0)
  for (const junk of ['-5', 'abc', '', '1e9', 'NaN', 'Infinity', 'tomorrow 12:00:00'])
    expect(wait({ 'retry-after': junk })).toBeUndefined()
  expect(wait({})).toBeUndefined()
})

test('a budget in tokens is the nearest effort', () => {
  expect([-1, 0, 1, 1024, 2000, 8000, 50_000].map(effortOf)).toEqual([
    'none',
    'none',
    'minimal',
    'minimal',
    'low',
    'medium',
    'high',
  ])
  expect(effortOf('off')).toBe('none')
})
