import { readdirSync, readFileSync } from 'node:fs'
import * as v from 'valibot'
import type { Api, AssistantMessage } from '../src/index.ts'

const folder = new URL('./fixtures/', import.meta.url)

/** What stands beside each stream, in a file of the same name. */
const expectation = v.strictObject({
  /** What it is a case of, and where it was reported. */
  case: v.string(),
  headers: v.optional(v.record(v.string(), v.string()), {}),
  outcome: v.variant('type', [
    v.strictObject({
      type: v.literal('answer'),
      content: v.custom<AssistantMessage['content']>(Array.isArray),
      stopReason: v.picklist(['stop', 'length', 'toolUse']),
      usage: v.exactOptional(v.custom<NonNullable<AssistantMessage['usage']>>((value) => typeof value === 'object')),
    }),
    v.strictObject({
      type: v.literal('failed'),
      code: v.string(),
      retryable: v.boolean(),
      outputShown: v.boolean(),
    }),
  ]),
  /** What the API's official client makes of it. */
  official: v.picklist(['agrees', 'reads otherwise', 'throws', 'takes it for an answer']),
})

/** A stream of a server, and what has to come of it. */
export type Case = v.InferOutput<typeof expectation> & {
  readonly name: string
  readonly api: Api
  readonly bytes: Uint8Array
}

const apis: readonly Api[] = ['anthropic-messages', 'openai-completions', 'openai-responses']

/** All streams in `fixtures/<api>/*.sse`. */
export const cases: readonly Case[] = apis.flatMap((api) =>
  readdirSync(new URL(`${api}/`, folder))
    .filter((file) => file.endsWith('.sse'))
    .toSorted()
    .map((file): Case => {
      const name = file.slice(0, -'.sse'.length)
      const given: unknown = JSON.parse(readFileSync(new URL(`${api}/${name}.json`, folder), 'utf8'))
      const bytes = new Uint8Array(readFileSync(new URL(`${api}/${file}`, folder)))
      return { ...v.parse(expectation, given), name: `${api}/${name}`, api, bytes }
    }),
)

export type Fixture = {
  readonly name: string
  readonly api: Api
  readonly stream: string
  readonly message: AssistantMessage
}

/** One whole answer for each protocol, with reasoning, text beyond ASCII, two calls, usage, a comment and an unknown event. */
export const fixtures: readonly Fixture[] = cases
  .filter(({ name }) => name.endsWith('/whole'))
  .map(({ api, bytes, outcome }) => {
    if (outcome.type !== 'answer') throw new Error(`${api}: not an answer`)
    return { name: api, api, stream: new TextDecoder().decode(bytes), message: messageOf(outcome) }
  })

/** The message that an outcome describes. */
export function messageOf(outcome: Extract<Case['outcome'], { type: 'answer' }>): AssistantMessage {
  const { content, stopReason, usage } = outcome
  return { role: 'assistant', model: 'fixture/test-model', content, stopReason, ...(usage && { usage }) }
}
