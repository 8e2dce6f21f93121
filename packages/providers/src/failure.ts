import { isRetryable } from './model.ts'
import type { ModelFailure, ModelFailureCode } from './model.ts'
import { saysOverflow } from './overflow.ts'
import { isNestedWithin } from './well-formed.ts'

/** What a server (or the way to it) said, before it is given a class: from an HTTP error or from an event in a stream. */
export type ServerError = {
  /** The server's own words, or ours where it had none. */
  readonly message: string
  /** The server's `error.type`. */
  readonly type?: string
  /** The server's `error.code`. */
  readonly code?: string
  /** HTTP status; absent for an error inside of a stream that began with 200. */
  readonly status?: number
  /** Set where the class is known here and the words decide nothing. */
  readonly as?: ModelFailureCode
  readonly retryable?: boolean
  readonly retryAfterMs?: number
  readonly requestId?: string
}

/** Whom a failure is about. */
export type FailureContext = {
  readonly provider: string
  readonly modelId: string
  /** The full URL of the request, without what could be a secret. */
  readonly url: string
  /** The variable that holds the key. */
  readonly keyName?: string
}

/** A stream that is not what its API promises. Asking again may help: proxies cut lines. */
export function protocolError(message: string): ServerError {
  return { message, as: 'protocol', retryable: true }
}

const shownCharacters = 2000
/** A server that asks to wait longer than this has closed its door until tomorrow; it is not busy. */
const longestWaitMs = 60 * 60 * 1000

/** Gives an error its class and its text. Pure: neither the key nor a clock is known here. */
export function failureOf(error: ServerError, context: FailureContext): ModelFailure {
  const code = error.as ?? codeOf(error)
  const words = cut(error.message.trim())
  const status = error.status === undefined ? '' : `HTTP ${error.status}`
  const what = [status, words].filter((part) => part !== '').join(': ') || 'an error without a message'
  const ending = /[.!?]$/.test(what) ? '' : '.'
  const request = error.requestId === undefined ? '' : ` (request ${error.requestId})`
  return {
    code,
    message: `${context.provider}/${context.modelId}: ${what}${ending} ${advice(code, context, error.retryAfterMs)}${request}`,
    retryable: error.retryable ?? isRetryable(code),
    ...(error.retryAfterMs !== undefined && { retryAfterMs: error.retryAfterMs }),
    ...(error.status !== undefined && { status: error.status }),
    ...(error.requestId !== undefined && { requestId: error.requestId }),
  }
}

/** The error that a body or an event describes: the shapes of the APIs and of the servers that imitate them. */
export function parseServerError(body: unknown): Pick<ServerError, 'message' | 'type' | 'code'> | undefined {
  const top = Array.isArray(body) ? (body as readonly unknown[])[0] : body
  if (!isRecord(top)) return undefined
  const inner = top['error'] ?? top['errors']
  if (typeof inner === 'string') return { message: inner, ...wordsOf(top) }
  const error = isRecord(inner) ? inner : top
  const message = textOf(error['message']) ?? textOf(error['detail']) ?? textOf(error['error_description'])
  if (message !== undefined) {
    // OpenRouter hides the words of the server behind it here.
    const metadata = error['metadata']
    const raw = isRecord(metadata) ? textOf(metadata['raw']) : undefined
    return { message: raw === undefined ? message : `${message}: ${raw}`, ...wordsOf(error) }
  }
  return isRecord(inner) ? { message: textOf(inner) ?? '', ...wordsOf(inner) } : undefined
}

function codeOf(error: ServerError): ModelFailureCode {
  // Within a stream some servers give the status that they would have sent as the code.
  const status = error.status ?? (/^[45]\d\d$/.test(error.code ?? '') ? Number(error.code) : undefined)
  const names = `${error.type ?? ''} ${error.code ?? ''}`.toLowerCase()
  const words = `${names} ${error.message}`
  if (status === 413) return 'overflow'
  if (status === 401 || /authentication_error|invalid_api_key|unauthenticated/.test(names)) return 'auth'
  // Gemini says so with 400.
  if (/api key not valid/i.test(words)) return 'auth'
  if (status === 402 || /insufficient_quota|billing|usage_limit|credit/.test(names)) return 'quota'
  if (status === 403 || /permission_error|permission_denied/.test(names)) return 'auth'
  if (status === 404 || /not_found/.test(names)) return 'not_found'
  if (status === 429 || /rate_limit|too_many_requests|resource_exhausted/.test(names)) {
    const closed = error.retryAfterMs !== undefined && error.retryAfterMs > longestWaitMs
    const used =
      error.retryAfterMs === undefined && /current quota|usage limit|out of credits|credit balance/i.test(words)
    return closed || used ? 'quota' : 'rate_limited'
  }
  if (saysOverflow(words)) return 'overflow'
  if (/credit balance is too low/i.test(words)) return 'quota'
  if (status === 529 || status === 503 || /overloaded|unavailable|insufficient_system_resource/.test(names))
    return 'overloaded'
  if (status === 408 || /timeout/.test(names)) return 'timeout'
  if (/content_filter|content_policy|refusal/.test(names)) return 'refused'
  if (status === undefined) return /invalid_request|invalid_prompt|bad_request/.test(names) ? 'bad_request' : 'server'
  if (status === 409 || status === 425 || status >= 500) return 'server'
  return 'bad_request'
}

function advice(code: ModelFailureCode, context: FailureContext, retryAfterMs: number | undefined): string {
  const wait = retryAfterMs === undefined ? 'in a while' : `in ${Math.ceil(retryAfterMs / 1000)} s`
  switch (code) {
    case 'auth':
      return context.keyName === undefined
        ? `Give provider ${context.provider} an apiKey in models.yml.`
        : `Check the key in $${context.keyName}.`
    case 'not_found':
      return `Check the provider's baseUrl and the model's id; asked was ${context.url}.`
    case 'bad_request':
      return "Check the provider's api and compat keys in models.yml."
    case 'overflow':
      return 'The conversation is too long for this model: compact it.'
    case 'rate_limited':
      return `Ask again ${wait}.`
    case 'quota':
      return 'The quota is used up: look at the account, or use another model.'
    case 'overloaded':
    case 'server':
      return `The trouble is the server's: ask again ${wait}.`
    case 'network':
      return "Check the provider's baseUrl, and that the server runs and can be reached."
    case 'timeout':
      return 'Ask again, or give it more time.'
    case 'protocol':
      return `Check the provider's baseUrl and api; asked was ${context.url}.`
    case 'ended_early':
      return 'Nothing of it counts: ask again.'
    case 'refused':
      return 'Ask in another way, or use another model.'
    case 'script':
      return 'Change the script.'
    default:
      return code satisfies never
  }
}

function wordsOf(error: Readonly<Record<string, unknown>>): { readonly type?: string; readonly code?: string } {
  const { type, code, status } = error
  const name = typeof code === 'number' ? String(code) : (textOf(code) ?? textOf(status))
  return { ...(typeof type === 'string' && { type }), ...(name !== undefined && { code: name }) }
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (typeof value !== 'object' || value === null) return undefined
  return isNestedWithin(value, 64) ? JSON.stringify(value) : 'an error nested too deep to show'
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function cut(text: string): string {
  if (text.length <= shownCharacters) return text
  return `${Array.from(text.slice(0, shownCharacters * 2))
    .slice(0, shownCharacters)
    .join('')}…`
}
