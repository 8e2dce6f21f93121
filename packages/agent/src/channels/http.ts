import { createHash, timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage as HttpRequest, type Server, type ServerResponse } from 'node:http'
import { isReveError, messageOf } from '@reve/base'
import * as v from 'valibot'
import { type Bell, createBell } from './bell.ts'
import type { Channel, ChannelInbox, IncomingMessage, MessageStatus } from './channel.ts'
import { ChannelError } from './errors.ts'

/** What a loopback HTTP channel needs. */
export type HttpChannelOptions = {
  /** Of 127.0.0.1; 0 lets the system choose. */
  readonly port: number
  /** What a caller has to show; 16 characters at least. */
  readonly token: string
  /** Default `http`. */
  readonly name?: string
  /** Bytes of a request's body; default 262 144. */
  readonly maxBytes?: number
  readonly after: (ms: number, signal: AbortSignal) => Promise<void>
  /** Called with the port each time that it listens. */
  readonly onListening?: (port: number) => void
}

const HOST = '127.0.0.1'
const MAX_BYTES = 1 << 18
const SHORTEST_TOKEN = 16
const MOST_CONNECTIONS = 64
const LONGEST_WAIT_S = 60

const Body = v.strictObject({
  text: v.string(),
  from: v.exactOptional(v.string()),
})

/**
 * A channel for programs of this machine: `POST /messages` takes one in, `GET /messages/<id>?wait=<seconds>` tells what came of it. It
 * listens on 127.0.0.1 alone; each request shows the token as a bearer.
 *
 * @throws ChannelError `bad_channel` for a token that is too short.
 */
export function httpChannel(options: HttpChannelOptions): Channel {
  const { port, token, name = 'http', onListening } = options
  if (token.length < SHORTEST_TOKEN)
    throw new ChannelError(
      'bad_channel',
      `the token of the channel "${name}" has less than ${SHORTEST_TOKEN} characters`,
    )
  const replies = createBell()
  return {
    name,
    start: async (inbox, signal) => {
      const desk = new Desk(options, inbox, replies, signal)
      const server = createServer((request, response) => void desk.serve(request, response))
      server.maxConnections = MOST_CONNECTIONS
      server.headersTimeout = 10_000
      server.requestTimeout = 30_000
      server.keepAliveTimeout = 5000
      const bound = await listening(server, port)
      onListening?.(bound)
      await ended(server, signal)
    },
    // The answer is kept with the message: whoever waits looks again.
    reply: async () => replies.ring(),
  }
}

async function listening(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(new ChannelError('bad_channel', `${HOST}:${port} cannot be listened on: ${messageOf(cause)}`, { cause })),
    )
    server.listen({ host: HOST, port, exclusive: true }, resolve)
  })
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : port
}

/** Serves until the abort. */
async function ended(server: Server, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const close = (): void => {
      server.close(() => resolve())
      server.closeAllConnections()
    }
    server.once('error', reject)
    if (signal.aborted) close()
    else signal.addEventListener('abort', close, { once: true })
  })
}

/** Why a request is refused. */
class Refusal extends Error {
  override readonly name = 'Refusal'
  readonly status: number
  readonly code: string
  readonly headers: Readonly<Record<string, string>>
  constructor(status: number, code: string, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message)
    this.status = status
    this.code = code
    this.headers = headers
  }
}

class Desk {
  readonly #options: HttpChannelOptions
  readonly #inbox: ChannelInbox
  readonly #replies: Bell
  readonly #signal: AbortSignal
  readonly #digest: Buffer

  constructor(options: HttpChannelOptions, inbox: ChannelInbox, replies: Bell, signal: AbortSignal) {
    this.#options = options
    this.#inbox = inbox
    this.#replies = replies
    this.#signal = signal
    this.#digest = digestOf(options.token)
  }

  async serve(request: HttpRequest, response: ServerResponse): Promise<void> {
    try {
      this.#admit(request)
      const { status, body } = await this.#route(request, response)
      send(response, status, body)
    } catch (error) {
      const refusal = refusalOf(error)
      // What is left of a body that is not wanted is not read.
      if (!request.complete) response.setHeader('connection', 'close')
      send(response, refusal.status, { error: { code: refusal.code, message: refusal.message } }, refusal.headers)
    }
  }

  #admit({ headers }: HttpRequest): void {
    // A page in a browser can reach this port under a name of its own; a program of this machine calls it by these.
    const host = (headers.host ?? '').replace(/:\d+$/, '')
    if ((host !== HOST && host !== 'localhost') || headers.origin !== undefined)
      throw new Refusal(403, 'forbidden', `this is for programs that call ${HOST}, not for pages`)
    const [, shown = ''] = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '') ?? []
    // Digests have one length, so that the comparison tells nothing of the token's.
    if (!timingSafeEqual(digestOf(shown), this.#digest))
      throw new Refusal(401, 'unauthorized', 'show the token of this channel: Authorization: Bearer …', {
        'www-authenticate': 'Bearer',
      })
  }

  async #route(request: HttpRequest, response: ServerResponse): Promise<Reply> {
    const url = URL.parse(request.url ?? '', `http://${HOST}`)
    const [, id] = /^\/messages(?:\/([^/]+))?$/.exec(url?.pathname ?? '') ?? [undefined, undefined]
    if (url === null || !url.pathname.startsWith('/messages') || (id === undefined && url.pathname !== '/messages'))
      throw new Refusal(404, 'not_found', 'there is POST /messages and GET /messages/<id>')
    const allowed = id === undefined ? 'POST' : 'GET'
    if (request.method !== allowed)
      throw new Refusal(405, 'method_not_allowed', `this takes ${allowed}`, { allow: allowed })
    return id === undefined ? this.#receive(request) : this.#tell(id, url.searchParams.get('wait'), response)
  }

  async #receive(request: HttpRequest): Promise<Reply> {
    const message = incomingOf(request, await bodyOf(request, this.#options.maxBytes ?? MAX_BYTES))
    const receipt = this.#inbox.receive(message)
    const status = this.#inbox.find(receipt.id) ?? { state: 'waiting' }
    return { status: receipt.new ? 202 : 200, body: { id: receipt.id, ...shown(status) } }
  }

  async #tell(id: string, wait: string | null, response: ServerResponse): Promise<Reply> {
    const seconds = Number(wait ?? 0)
    if (!(seconds >= 0 && seconds <= LONGEST_WAIT_S))
      throw new Refusal(400, 'bad_request', `wait takes 0 to ${LONGEST_WAIT_S} seconds`)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const over = AbortSignal.any([this.#signal, gone.signal])
    const late = new AbortController()
    if (seconds > 0) void this.#options.after(seconds * 1000, over).then(() => late.abort())
    else late.abort()
    for (;;) {
      const status = this.#inbox.find(id)
      if (status === undefined) throw new Refusal(404, 'not_found', 'this channel has no such message')
      if (status.state === 'answered' || late.signal.aborted || over.aborted) {
        gone.abort()
        return { status: 200, body: { id, ...shown(status) } }
      }
      await this.#replies.next(AbortSignal.any([over, late.signal]))
    }
  }
}

type Reply = { readonly status: number; readonly body: object }

const shown = (status: MessageStatus): object =>
  status.state === 'answered' ? { state: 'answered', ok: status.answer.ok, answer: status.answer.text } : status

function send(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.destroyed) return
  response.writeHead(status, {
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...headers,
  })
  response.end(`${JSON.stringify(body)}\n`)
}

const statuses: Readonly<Record<string, number>> = {
  inbox_full: 429,
  too_large: 413,
  invalid_message: 400,
  key_reused: 422,
}

function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error
  const status = isReveError(error) ? statuses[error.code] : undefined
  if (!isReveError(error) || status === undefined)
    return new Refusal(503, 'unavailable', 'the message could not be kept; try again later', { 'retry-after': '30' })
  return new Refusal(status, error.code, error.message, status === 429 ? { 'retry-after': '30' } : {})
}

async function bodyOf(request: HttpRequest, maxBytes: number): Promise<string> {
  const tooLarge = (): Refusal => new Refusal(413, 'too_large', `a message has ${maxBytes} bytes at most`)
  if (request.headers['content-encoding'] !== undefined)
    throw new Refusal(415, 'unsupported', 'the body must not be encoded')
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge()
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of request) {
    if (!Buffer.isBuffer(part)) continue
    bytes += part.length
    if (bytes > maxBytes) throw tooLarge()
    parts.push(part)
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts))
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    throw new Refusal(400, 'invalid_message', 'the body is no UTF-8')
  }
}

function incomingOf({ headers }: HttpRequest, body: string): IncomingMessage {
  const key = headers['idempotency-key']
  if (Array.isArray(key)) throw new Refusal(400, 'invalid_message', 'there are two idempotency keys')
  const keyed = key === undefined ? {} : { key }
  const [type = ''] = (headers['content-type'] ?? '').toLowerCase().split(';')
  switch (type.trim()) {
    case 'text/plain':
      return { text: body, ...keyed }
    case 'application/json': {
      const read = v.safeParse(v.pipe(v.string(), v.parseJson(), Body), body)
      if (read.success) return { ...read.output, ...keyed }
      throw new Refusal(400, 'invalid_message', 'the body takes {"text": "…", "from": "…"}, `from` being optional')
    }
    default:
      throw new Refusal(415, 'unsupported', 'the body is application/json or text/plain')
  }
}

const digestOf = (text: string): Buffer => createHash('sha256').update(text).digest()
