import { codeOf } from '@reve/base'
import { ProtocolError, SdkError, SdkErrorCode, SdkHttpError } from '@modelcontextprotocol/client'
import { McpError } from './errors.ts'
import { plainText } from './text.ts'

/** The code of an answer that we make up when a stream ended without one; outside of what JSON-RPC reserves. */
export const lostCode = -2_001_001

/** What a failure of the SDK's client means. */
export function failureOf(
  error: unknown,
  about: { readonly hasSession: boolean; readonly isAborted: boolean },
): McpError {
  if (error instanceof McpError) return error
  const failed = (code: ConstructorParameters<typeof McpError>[0], text: string): McpError =>
    new McpError(code, text, { cause: error })
  if (about.isAborted) return failed('aborted', 'it was given up')
  if (error instanceof SdkHttpError) return httpFailure(error, about.hasSession, failed)
  if (error instanceof ProtocolError) {
    return error.code === lostCode
      ? failed('lost', 'the connection ended before the answer came')
      : failed('error_answer', `it answered with the error ${error.code}: ${plainText(error.message, 1000)}`)
  }
  if (error instanceof SdkError) return sdkFailure(error, about, failed)
  return networkFailure(error, failed)
}

type Failed = (code: ConstructorParameters<typeof McpError>[0], text: string) => McpError

function httpFailure(error: SdkHttpError, hasSession: boolean, failed: Failed): McpError {
  const { status } = error
  const text = typeof error.data['text'] === 'string' ? plainText(error.data['text'], 300) : ''
  const said = `HTTP ${status}${text === '' ? '' : `: ${text}`}`
  if (status >= 300 && status < 400) {
    const where = /Redirect to (\S+) not followed/.exec(error.message)?.[1]
    return failed(
      'not_mcp',
      `it redirects${where === undefined ? '' : ` to ${plainText(where, 300)}`}, which is not followed`,
    )
  }
  if (status === 401 || status === 403) return failed('refused', `it does not take the credentials (${said})`)
  // Some servers say "bad request" of a session that they do not know.
  if (hasSession && (status === 404 || (status === 400 && /session/i.test(text))))
    return failed('expired', 'it has forgotten the session')
  if (status === 404 || status === 405)
    return failed('not_mcp', `no MCP endpoint answers there (${said}); the path often is /mcp`)
  return status < 500 ? failed('error_answer', said) : failed('lost', said)
}

function sdkFailure(error: SdkError, about: Parameters<typeof failureOf>[1], failed: Failed): McpError {
  switch (error.code) {
    case SdkErrorCode.RequestTimeout:
      return failed('timeout', 'no answer came in time')
    case SdkErrorCode.ConnectionClosed:
    case SdkErrorCode.NotConnected:
      return failed('lost', 'the connection was closed')
    case SdkErrorCode.EraNegotiationFailed:
      return error.cause === undefined
        ? failed('not_mcp', plainText(error.message, 300))
        : failureOf(error.cause, about)
    case SdkErrorCode.UnsupportedResultType:
      return failed('error_answer', "it asks for a person's input in the midst of the call, which nobody can give here")
    default:
      return failed('bad_answer', `its answer is not what the protocol says: ${plainText(error.message, 300)}`)
  }
}

/** Of these we know that nothing was sent. */
const neverSent =
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|UND_ERR_CONNECT_TIMEOUT|.*CERT.*|ERR_TLS.*|ERR_SSL.*|EPROTO)$/

function networkFailure(error: unknown, failed: Failed): McpError {
  // The platform says "fetch failed", and why in the cause; of several addresses each has its own.
  const causes = [error, ...(error instanceof Error ? [error.cause] : [])]
  const parts = causes.flatMap((cause) => (cause instanceof AggregateError ? [cause, ...cause.errors] : [cause]))
  const code = parts.map(codeOf).find((found) => found !== undefined && !/^\d+$/.test(found))
  if (code !== undefined && neverSent.test(code)) return failed('unreachable', `it cannot be reached (${code})`)
  if (code !== undefined) return failed('lost', `the connection broke (${code})`)
  const messages = causes.flatMap((cause) => (cause instanceof Error ? [cause.message] : []))
  if (messages.includes('bad port')) return failed('unreachable', 'it has a port that belongs to another protocol')
  return failed('bad_answer', plainText(messages.join(': ') || String(error), 300))
}
