import { ReveError } from '@reve/base'

/** Why an agent directory, or something asked of it, was refused. */
export type AgentErrorCode =
  /** The folder has neither `agent.lua` nor `instructions.md`. */
  | 'not_an_agent'
  /** `agent.lua`, `sandbox.lua`, a tool, a channel or a module is wrong: the message lists every problem with its place. */
  | 'bad_config'
  /** No model is named, or the named one cannot be used. */
  | 'no_model'
  /** A tool of that name does not exist. */
  | 'unknown_tool'
  /** A command of that name does not exist. */
  | 'unknown_command'
  /** There is no session to continue. */
  | 'no_session'
  /** The files of a moment were not kept, or cannot be brought back. */
  | 'no_checkpoint'
  /** A file or folder could not be read or written. */
  | 'io'

/** A refusal of this package; the message says what, where, and what to do next. */
export class AgentError extends ReveError<AgentErrorCode> {
  override readonly name = 'AgentError'
}
