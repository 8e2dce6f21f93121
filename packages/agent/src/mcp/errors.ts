import { ReveError } from '@reve/base'

/** Why an MCP server did not do what it was asked. */
export type McpErrorCode =
  /** No connection came about: nothing was done. */
  | 'unreachable'
  /** The server does not take the credentials: nothing was done. */
  | 'refused'
  /** The server has forgotten the session: nothing was done, and a new session may do it. */
  | 'expired'
  /** What answers there is no MCP server, or one that this client cannot talk to. */
  | 'not_mcp'
  /** No answer in time; what was asked may have been done. */
  | 'timeout'
  /** The connection broke before the answer; what was asked may have been done. */
  | 'lost'
  /** The server answered with an error. */
  | 'error_answer'
  /** An answer that does not keep to the protocol; what was asked may have been done. */
  | 'bad_answer'
  /** Whoever asked gave up. */
  | 'aborted'

/** A failure of an MCP server; its message repeats no header. */
export class McpError extends ReveError<McpErrorCode> {
  override readonly name = 'McpError'
}
