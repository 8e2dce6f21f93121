import { redactSecrets } from '@reve/base'
import { anthropicBody, anthropicHeaders } from './anthropic-request.ts'
import { fetchThrough } from './connection.ts'
import { anthropicReader } from './anthropic-stream.ts'
import { Answer } from './answer.ts'
import { completionsBody } from './completions-request.ts'
import { completionsReader } from './completions-stream.ts'
import { UnexpectedEvent } from './events.ts'
import { failureOf, parseServerError, protocolError } from './failure.ts'
import type { ServerError } from './failure.ts'
import type { Model, ModelEvent, ModelOutcome, ModelRequest } from './model.ts'
import { responsesBody } from './responses-request.ts'
import { responsesReader } from './responses-stream.ts'
import { retryAfter } from './retry-after.ts'
import { post, readCapped } from './transport.ts'
import type { BodyEnd, Reply, TransportOptions } from './transport.ts'
import { wellFormed } from './well-formed.ts'
import type { Api, HttpModelConfig, Protocol } from './wire.ts'

const bearer = (key: string | undefined): Readonly<Record<string, string>> =>
  key === undefined ? {} : { authorization: `Bearer ${key}` }

export const protocols: Readonly<Record<Api, Protocol>> = {
  'openai-responses': {
    path: (base) => `${base}/responses`,
    list: (base) => `${base}/models`,
    headers: bearer,
    body: responsesBody,
    reader: responsesReader,
  },
  'openai-completions': {
    path: (base) => `${base}/chat/completions`,
    list: (base) => `${base}/models`,
    headers: bearer,
    body: completionsBody,
    reader: completionsReader,
  },
  'anthropic-messages': {
    path: (base) => `${base}${base.endsWith('/v1') ? '' : '/v1'}/messages`,
    list: (base) => `${base}${base.endsWith('/v1') ? '' : '/v1'}/models`,
    headers: anthropicHeaders,
    body: anthropicBody,
    reader: anthropicReader,
  },
}

const mostErrorBytes = 8 * 1024
const mostLineCharacters = 64 * 1024 * 1024
const shownBodyCharacters = 200

/**
 * A model behind one of the three wire protocols. Each `stream` sends one request, once; what fails comes back with its
 * class, and the caller decides about another attempt. The key goes into one header and into no message.
 *
 * @throws {TypeError} when `baseUrl` is no URL; `loadModels` has checked those that it hands on.
 */
export function createHttpModel(config: HttpModelConfig, options: TransportOptions = {}): Model {
  const protocol = protocols[config.api]
  const id = `${config.provider}/${config.modelId}`
  const url = below(config.baseUrl, protocol.path)
  const now = options.now ?? Date.now
  const secrets = [...(config.apiKey === undefined ? [] : [config.apiKey]), ...(config.secrets ?? [])]
  const proxies = options.proxies
  const through = fetchThrough(url, { ...config.connection, ...(proxies !== undefined && { proxies }) })
  const transport: TransportOptions = { ...(through !== undefined && { fetch: through }), ...options }

  async function* stream(
    request: ModelRequest,
    { signal }: { readonly signal: AbortSignal },
  ): AsyncGenerator<ModelEvent, ModelOutcome, void> {
    const answer = new Answer(`call_${request.messages.length}`)
    let outputShown = false
    const aborted = (): ModelOutcome => ({ type: 'aborted', partial: answer.message(id, 'aborted') })
    const failed = (error: ServerError): ModelOutcome => ({
      type: 'failed',
      failure: failureOf(withoutKeys(error, secrets), contextOf(config, url)),
      outputShown,
      ...(answer.usage && { usage: answer.usage }),
    })

    const body = JSON.stringify(wellFormed(protocol.body(request, config)))
    const reply = await post(
      url.href,
      { ...protocol.headers(config.apiKey, config), ...config.headers },
      body,
      signal,
      transport,
    )
    if (reply.type === 'aborted') return aborted()
    if (reply.type !== 'response') return failed(connectionError(reply, contextOf(config, url).url))
    const about = aboutReply(reply, now())
    if (!isOk(reply.status) || isWholeDocument(reply.headers)) {
      const text = await readCapped(reply.body, mostErrorBytes)
      return signal.aborted ? aborted() : failed(bodyError(reply.status, reply.headers, text, about))
    }

    const events = yield* readEvents(reply.body, answer, protocol.reader(answer), signal, () => (outputShown = true))
    if (answer.state.type === 'failed') return failed({ ...about, ...answer.state.error })
    if (signal.aborted || events.end.type === 'aborted') return aborted()
    if (answer.state.type !== 'open') return { type: 'answer', message: answer.message(id, answer.state.stop) }
    if (!events.any && isDocument(events.head, reply.headers)) {
      return failed(bodyError(reply.status, reply.headers, events.head, about))
    }
    return failed({ ...about, ...earlyEnd(events.end) })
  }

  const { contextWindow, maxTokens, price } = config
  return { id, contextWindow, maxTokens, ...(price && { price }), stream }
}

/** A URL of the API below its base; a query of the base stays. */
export function below(baseUrl: string, path: (basePath: string) => string): URL {
  const url = new URL(baseUrl)
  url.pathname = path(url.pathname.replace(/\/+$/, ''))
  return url
}

type Read = {
  readonly end: BodyEnd
  /** Whether there was any event at all. */
  readonly any: boolean
  /** The beginning of the body. */
  readonly head: string
}

/** Feeds a body through the parser into the reader, until the answer is done or failed, or the bytes end. */
async function* readEvents(
  body: AsyncGenerator<string, BodyEnd, void>,
  answer: Answer,
  read: ReturnType<Protocol['reader']>,
  signal: AbortSignal,
  onShown: () => void,
): AsyncGenerator<ModelEvent, Read, void> {
  const { createParser } = await import('eventsource-parser')
  const pending: { readonly name: string | undefined; readonly data: string }[] = []
  const parser = createParser({
    maxBufferSize: mostLineCharacters,
    onEvent: (event) => pending.push({ name: event.event, data: event.data }),
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') answer.fail(protocolError('the server sent a line without end'))
    },
  })
  let any = false
  let head = ''
  let end: BodyEnd | undefined
  const isOver = (): boolean => answer.state.type === 'failed' || answer.state.type === 'done' || signal.aborted
  try {
    while (end === undefined && !isOver()) {
      const piece = await body.next()
      if (piece.done === true) end = piece.value
      else if (head.length < mostErrorBytes) head += piece.value.slice(0, mostErrorBytes - head.length)
      // A terminal event may lack its blank line; what is cut within is no JSON and counts as not sent.
      parser.feed(piece.done === true ? '\n\n' : piece.value)
      for (const event of pending.splice(0)) {
        if (isOver()) break
        if (event.data.trim() === '') continue
        any = true
        readOne(event, answer, read, end !== undefined)
        for (const shown of answer.take()) {
          onShown()
          yield shown
          if (signal.aborted) return { end: { type: 'aborted' }, any, head }
        }
      }
    }
    return { end: end ?? { type: 'end' }, any, head }
  } finally {
    await body.return({ type: 'end' })
  }
}

function readOne(
  event: { readonly name: string | undefined; readonly data: string },
  answer: Answer,
  read: ReturnType<Protocol['reader']>,
  atEnd: boolean,
): void {
  let data: unknown = '[DONE]'
  if (event.data.trim() !== '[DONE]') {
    try {
      data = JSON.parse(event.data)
    } catch {
      if (!atEnd)
        answer.fail(
          protocolError(`the server sent a line that is not JSON: ${event.data.slice(0, shownBodyCharacters)}`),
        )
      return
    }
  }
  try {
    read({ name: event.name, data })
  } catch (error) {
    if (!(error instanceof UnexpectedEvent)) throw error
    answer.fail(protocolError(error.message))
  }
}

/** JSON and HTML are one document, never a stream. */
function isWholeDocument(headers: Headers): boolean {
  return /^\s*(?:application\/(?:problem\+)?json|text\/html|application\/xhtml\+xml)\b/i.test(
    headers.get('content-type') ?? '',
  )
}

/** Whether a body without one event is something else, and not a stream that was cut in its first line. */
function isDocument(head: string, headers: Headers): boolean {
  if (head.trim() === '') return false
  return /^\s*[<{[]/.test(head) || !/event-stream/i.test(headers.get('content-type') ?? '')
}

type About = Pick<ServerError, 'requestId' | 'retryAfterMs'>

function aboutReply(reply: Extract<Reply, { readonly type: 'response' }>, now: number): About {
  const requestId = reply.headers.get('x-request-id') ?? reply.headers.get('request-id') ?? undefined
  const retryAfterMs = retryAfter(reply.headers, now)
  return { ...(requestId !== undefined && { requestId }), ...(retryAfterMs !== undefined && { retryAfterMs }) }
}

/** The error in a body that is no stream. */
function bodyError(status: number, headers: Headers, body: string, about: About): ServerError {
  if (status >= 300 && status < 400) {
    const message = `the server redirects to ${headers.get('location') ?? 'another place'}, which is not followed`
    return { ...about, status, message, as: 'not_found' }
  }
  const said = parseServerError(tryJson(body))
  const start = body.trim().slice(0, shownBodyCharacters).toWellFormed()
  if (isOk(status) && said === undefined) {
    const message = start === '' ? 'the answer is empty' : `the answer is not an event stream: ${start}`
    return { ...about, message, as: 'protocol', retryable: false }
  }
  // An error that came with a success has no status to go by.
  const from = isOk(status) ? about : { ...about, status }
  const decided = headers.get('x-should-retry') === 'false' ? { retryable: false } : {}
  return { ...from, ...(said ?? { message: start }), ...decided }
}

function connectionError(end: Exclude<Reply, { readonly type: 'response' | 'aborted' }>, url: string): ServerError {
  return end.type === 'timeout'
    ? { message: `no answer from ${url} in time`, as: 'timeout' }
    : { message: `cannot reach ${url}: ${end.reason}`, as: 'network' }
}

function earlyEnd(end: BodyEnd): ServerError {
  switch (end.type) {
    case 'timeout':
      return { message: 'the server fell silent in the middle of its answer', as: 'timeout' }
    case 'dropped':
      return { message: `the connection broke in the middle of the answer (${end.reason})`, as: 'ended_early' }
    case 'end':
    case 'aborted':
      return { message: 'the stream ended early, before the server said that the answer is whole', as: 'ended_early' }
    default:
      return end satisfies never
  }
}

function contextOf(config: HttpModelConfig, url: URL): Parameters<typeof failureOf>[1] {
  const { provider, modelId, apiKeyName } = config
  // A query may hold a key.
  const shown = `${url.origin}${url.pathname}`
  return { provider, modelId, url: shown, ...(apiKeyName !== undefined && { keyName: apiKeyName }) }
}

/** Before anything is cut. A text that was cut already may end within the key, where no comparison would find it. */
export function withoutKeys(error: ServerError, keys: readonly string[]): ServerError {
  // As it was sent, and as a server may write it into a URL.
  const shown = keys.flatMap((key) => [key, encodeURIComponent(key)])
  let message = redactSecrets(error.message, shown)
  for (const key of keys) {
    for (let length = Math.min(key.length, message.length); length >= 4; length--) {
      if (message.endsWith(key.slice(0, length))) message = message.slice(0, -length)
    }
  }
  const { requestId } = error
  return { ...error, message, ...(requestId !== undefined && { requestId: redactSecrets(requestId, shown) }) }
}

function isOk(status: number): boolean {
  return status >= 200 && status < 300
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
