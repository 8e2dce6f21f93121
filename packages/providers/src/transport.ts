import type { Proxies } from './proxy.ts'

/** How requests are sent. */
export type TransportOptions = {
  /** Default: the platform's, or one that goes by `proxies` and a provider's own certificates. */
  readonly fetch?: typeof globalThis.fetch
  /** Default: none. `proxiesOf` reads them from the usual variables. */
  readonly proxies?: Proxies
  /** Milliseconds until the headers of an answer. Default 300 000: a local server reads the whole prompt before it speaks. */
  readonly headersTimeoutMs?: number
  /** Milliseconds of silence between two pieces of an answer. Default 300 000. The whole may take as long as it takes. */
  readonly idleTimeoutMs?: number
  /** Milliseconds since the epoch, for `Retry-After` dates. Default: the system clock. */
  readonly now?: () => number
}

/** Why bytes stopped: all came, our signal, silence, or a lost connection. */
export type BodyEnd =
  | { readonly type: 'end' }
  | { readonly type: 'aborted' }
  | { readonly type: 'timeout' }
  | { readonly type: 'dropped'; readonly reason: string }

export type Reply =
  | {
      readonly type: 'response'
      readonly status: number
      readonly headers: Headers
      /** The body as text, cut anywhere but within a character. To leave it early closes the connection. */
      readonly body: AsyncGenerator<string, BodyEnd, void>
    }
  | Exclude<BodyEnd, { readonly type: 'end' }>

const defaultTimeoutMs = 300_000

/**
 * Sends one POST, once: no retry, no redirect (a key must not travel to another host). Every end is a value.
 *
 * @param url absolute.
 * @param body JSON text.
 */
export function post(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: string,
  signal: AbortSignal,
  options: TransportOptions,
): Promise<Reply> {
  const given = { 'content-type': 'application/json', accept: 'text/event-stream', ...headers }
  return send(url, { method: 'post', headers: given, body }, signal, options)
}

/** The same with a GET, for a JSON document. */
export function get(
  url: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
  options: TransportOptions,
): Promise<Reply> {
  return send(url, { method: 'get', headers: { accept: 'application/json', ...headers } }, signal, options)
}

async function send(
  url: string,
  request: {
    readonly method: 'get' | 'post'
    readonly headers: Readonly<Record<string, string>>
    readonly body?: string
  },
  signal: AbortSignal,
  options: TransportOptions,
): Promise<Reply> {
  if (signal.aborted) return { type: 'aborted' }
  // Loaded at the first request: whoever only needs the vocabulary or a scripted model does not pay for it.
  const { default: ky, isTimeoutError } = await import('ky')
  const closing = new AbortController()
  const abort = (): void => closing.abort()
  signal.addEventListener('abort', abort, { once: true })
  const release = (): void => {
    signal.removeEventListener('abort', abort)
    closing.abort()
  }
  try {
    const response = await ky(url, {
      ...request,
      signal: closing.signal,
      retry: 0,
      redirect: 'manual',
      throwHttpErrors: false,
      timeout: options.headersTimeoutMs ?? defaultTimeoutMs,
      ...(options.fetch && { fetch: options.fetch }),
    })
    const idle = options.idleTimeoutMs ?? defaultTimeoutMs
    return {
      type: 'response',
      status: response.status,
      headers: response.headers,
      body: read(response.body, signal, closing, idle, release),
    }
  } catch (error) {
    release()
    if (signal.aborted) return { type: 'aborted' }
    return isTimeoutError(error) || isPlatformTimeout(error)
      ? { type: 'timeout' }
      : { type: 'dropped', reason: reasonOf(error) }
  }
}

async function* read(
  body: ReadableStream<Uint8Array> | null,
  signal: AbortSignal,
  closing: AbortController,
  idleTimeoutMs: number,
  release: () => void,
): AsyncGenerator<string, BodyEnd, void> {
  const reader = body?.getReader()
  const decoder = new TextDecoder()
  let silent = false
  const silence = (): void => {
    silent = true
    closing.abort()
  }
  let watchdog: NodeJS.Timeout | undefined
  try {
    for (;;) {
      // Only the server's silence counts, not the time that whoever takes the text takes.
      watchdog = setTimeout(silence, idleTimeoutMs)
      const piece = await reader?.read()
      clearTimeout(watchdog)
      if (signal.aborted) return { type: 'aborted' }
      if (piece === undefined || piece.done) break
      const text = decoder.decode(piece.value, { stream: true })
      if (text !== '') yield text
    }
    const rest = decoder.decode()
    if (rest !== '') yield rest
    return { type: 'end' }
  } catch (error) {
    if (signal.aborted) return { type: 'aborted' }
    return silent || isPlatformTimeout(error) ? { type: 'timeout' } : { type: 'dropped', reason: reasonOf(error) }
  } finally {
    clearTimeout(watchdog)
    // Also for a fetch that does not listen to signals; what is broken already has nothing to cancel.
    void reader?.cancel().catch(() => undefined)
    release()
  }
}

/** At most `maxBytes` of a body, as text; the rest is not read. */
export async function readCapped(body: AsyncGenerator<string, BodyEnd, void>, maxBytes: number): Promise<string> {
  let text = ''
  for await (const piece of body) {
    text += piece
    if (Buffer.byteLength(text) >= maxBytes) break
  }
  return Buffer.byteLength(text) <= maxBytes ? text : new TextDecoder().decode(Buffer.from(text).subarray(0, maxBytes))
}

/** The innermost cause says what happened; what stands around it says only that something did. */
function reasonOf(error: unknown): string {
  const cause = innermost(error)
  const code = codeOf(cause)
  const message = cause instanceof Error ? cause.message : ''
  if (code === undefined) return message === '' ? 'the connection failed' : message
  return message.includes(code) || message === '' ? message || code : `${code}: ${message}`
}

function isPlatformTimeout(error: unknown): boolean {
  return /^UND_ERR_(?:HEADERS|BODY|CONNECT)_TIMEOUT$/.test(codeOf(innermost(error)) ?? '')
}

function innermost(error: unknown): unknown {
  let cause = error
  for (let depth = 0; depth < 8 && cause instanceof Error; depth++) {
    // One failure for each address that was tried; the first will do.
    const inner: unknown = cause instanceof AggregateError ? (cause.errors as readonly unknown[])[0] : cause.cause
    if (!(inner instanceof Error)) break
    cause = inner
  }
  return cause
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}
