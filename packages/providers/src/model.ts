/**
 * The vocabulary between a model and whoever runs it: messages, tools, usage, the events of a stream and its one end.
 * No provider's shape is in here and nothing is imported but the scripted model, so that an embedder who brings an own
 * `Model` carries no adapter (subpath `@reve/providers/model`).
 */

export { createScriptedModel } from './scripted.ts'
export type { ScriptedCall, ScriptedFailure, ScriptedModelOptions, ScriptedTurn } from './scripted.ts'

/** Any value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }
/** A JSON object. */
export type JsonObject = { readonly [key: string]: Json }

/** Plain text. */
export type TextPart = { readonly type: 'text'; readonly text: string }

/** An image: `mimeType` such as `image/png`, `data` in base64 without a `data:` prefix. */
export type ImagePart = { readonly type: 'image'; readonly mimeType: string; readonly data: string }

/**
 * What a model thought. It goes back byte for byte to the model that wrote it (`AssistantMessage.model`) and to no
 * other: `opaque` is that model's own item as it came over the wire, under the name of its API; keep it as it is. `text`
 * is for people. A part without `opaque` cannot be sent back and is for display only.
 */
export type ReasoningPart = { readonly type: 'reasoning'; readonly text: string; readonly opaque?: JsonObject }

/**
 * A call that the model wants made. Arguments that did not parse as a JSON object stay as the text that came
 * (`malformed`); such a call must never run, its result shows the raw text. Tell the two apart by `'malformed' in part`.
 */
export type ToolCallPart = {
  readonly type: 'toolCall'
  /** The wire's own id; a result names it. Unique within one answer. */
  readonly id: string
  readonly name: string
} & ({ readonly arguments: JsonObject } | { readonly malformed: string })

/** Text that a model wrote. `opaque` as in `ReasoningPart`: what its API says of the text and wants back with it. */
export type AnswerTextPart = TextPart & { readonly opaque?: JsonObject }

/** What a person, or the program in a person's name, says. */
export type UserMessage = { readonly role: 'user'; readonly content: readonly (TextPart | ImagePart)[] }

/** One answer of a model, parts in the order in which the model wrote them. */
export type AssistantMessage = {
  readonly role: 'assistant'
  /** `provider/model-id` of the writer. */
  readonly model: string
  readonly content: readonly (AnswerTextPart | ReasoningPart | ToolCallPart)[]
  readonly stopReason: StopReason
  /** Absent when the server reported none, or only zeros: estimate then, do not read it as nothing used. */
  readonly usage?: Usage
}

/** The answer to one tool call. */
export type ToolResultMessage = {
  readonly role: 'toolResult'
  readonly toolCallId: string
  readonly toolName: string
  readonly content: readonly (TextPart | ImagePart)[]
  readonly isError: boolean
  /** The effect may have happened or not: its outcome is unknown. */
  readonly interrupted?: true
}

/** One turn of a conversation as a model sees it. */
export type Message = UserMessage | AssistantMessage | ToolResultMessage

/**
 * Why an answer ended. `length`: the output cap cut it, so no call in it may run. `toolUse`: it waits for results.
 * `aborted`: our own signal ended it, a server's word never does.
 */
export type StopReason = 'stop' | 'length' | 'toolUse' | 'aborted'

/**
 * Tokens, with the same meaning on every API: `input` excludes what was read from or written to a cache; `output`
 * includes `reasoning`. All of a prompt is `input + cacheRead + cacheWrite`.
 */
export type Usage = {
  readonly input: number
  readonly cacheRead: number
  readonly cacheWrite: number
  readonly output: number
  readonly reasoning: number
}

/** US dollars per million tokens, by the classes of `Usage` (reasoning is paid as output). */
export type Price = {
  readonly input: number
  readonly cacheRead: number
  readonly cacheWrite: number
  readonly output: number
}

/** A tool offered to a model; `parameters` is a JSON Schema whose type is `object`. */
export type ToolSpec = { readonly name: string; readonly description: string; readonly parameters: JsonObject }

/** How hard to think; a number is a budget in tokens. An adapter maps it to what its API knows. */
export type Thinking = 'off' | 'minimal' | 'low' | 'medium' | 'high' | number

/** One request: everything that the model may see. */
export type ModelRequest = {
  /** Empty for none. */
  readonly system: string
  readonly messages: readonly Message[]
  readonly tools: readonly ToolSpec[]
  /** Absent: what the server does by itself. Ignored for a model that `models.yml` does not mark as reasoning. */
  readonly thinking?: Thinking
  /** Names the conversation, so that requests with a common prefix find the same cache. */
  readonly sessionId?: string
}

/**
 * What arrives while an answer is written, for display. The truth is the outcome's message. `index` counts the calls
 * of the answer from 0; `delta` of a call is raw argument text, which is not JSON until the call is complete.
 */
export type ModelEvent =
  | { readonly type: 'text'; readonly delta: string }
  | { readonly type: 'reasoning'; readonly delta: string }
  | { readonly type: 'toolCall'; readonly index: number; readonly name: string; readonly delta: string }

/**
 * - `auth`: 401, 403. `not_found`: 404, a wrong URL or model id. `bad_request`: the server rejects what was sent.
 * - `overflow`: the conversation does not fit (also 413): shorten it, then ask again.
 * - `rate_limited`: wait. `quota`: used up, waiting seconds does not help. `overloaded`, `server`: the server's trouble.
 * - `network`: no connection, or it broke before an answer. `timeout`: no headers, or silence between bytes.
 * - `protocol`: the answer is not what the API promises. `ended_early`: the stream stopped without saying that it was done.
 * - `refused`: the model or a filter of the server declined. `script`: a scripted model has no such turn.
 */
export type ModelFailureCode =
  | 'auth'
  | 'not_found'
  | 'bad_request'
  | 'overflow'
  | 'rate_limited'
  | 'quota'
  | 'overloaded'
  | 'server'
  | 'network'
  | 'timeout'
  | 'protocol'
  | 'ended_early'
  | 'refused'
  | 'script'

/**
 * Why there is no answer. `message` names provider, model, status, the server's words and what to do; a key is never
 * in it. `retryable`: the same request may succeed later (the one who asks decides, nothing is sent twice by itself).
 */
export type ModelFailure = {
  readonly code: ModelFailureCode
  readonly message: string
  readonly retryable: boolean
  /** How long the server asks to wait, in milliseconds. */
  readonly retryAfterMs?: number
  /** HTTP status, when one arrived. */
  readonly status?: number
  /** The server's name for the request, for its support. */
  readonly requestId?: string
}

/**
 * The one end of a stream.
 * - `aborted`: `partial` holds what had arrived, with stopReason `aborted`; a call that was still being written is
 *   `malformed`. `partial.usage` is what the server had reported until then.
 * - `failed`: `outputShown` says that events were yielded, so that asking again would show text twice.
 */
export type ModelOutcome =
  | { readonly type: 'answer'; readonly message: AssistantMessage }
  | { readonly type: 'aborted'; readonly partial: AssistantMessage }
  | { readonly type: 'failed'; readonly failure: ModelFailure; readonly outputShown: boolean; readonly usage?: Usage }

/** The port: one model that can be asked. */
export interface Model {
  /** `provider/model-id`; the provider is what stands before the first slash. */
  readonly id: string
  /** Tokens that prompt and answer may have together. */
  readonly contextWindow: number
  /** Tokens that one answer may have. */
  readonly maxTokens: number
  readonly price?: Price
  /**
   * Sends one request, once. Every end is an outcome: what a server or the network does is never thrown. An aborted
   * signal ends it at once, before and during the answer. Leaving the generator early closes the connection.
   */
  stream(
    request: ModelRequest,
    options: { readonly signal: AbortSignal },
  ): AsyncGenerator<ModelEvent, ModelOutcome, void>
}

const retryableCodes: ReadonlySet<ModelFailureCode> = new Set([
  'rate_limited',
  'overloaded',
  'server',
  'network',
  'timeout',
  'ended_early',
])

/** Whether a failure of this kind is worth asking again, when nothing more is known about it. */
export function isRetryable(code: ModelFailureCode): boolean {
  return retryableCodes.has(code)
}

/** What `usage` costs at `price`, in US dollars. */
export function costOf(usage: Usage, price: Price): number {
  return (
    (usage.input * price.input +
      usage.cacheRead * price.cacheRead +
      usage.cacheWrite * price.cacheWrite +
      usage.output * price.output) /
    1_000_000
  )
}
