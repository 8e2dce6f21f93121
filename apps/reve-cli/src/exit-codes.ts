import type { AgentErrorCode, ChannelErrorCode } from '@reve/agent'
import { isReveError, type ConfinedErrorCode, type LockFileError, type LockHeldError } from '@reve/base'
import type { YamlError } from '@reve/base/yaml'
import type { HarnessErrorCode } from '@reve/harness'
import type { ModelsError } from '@reve/providers'
import type { MicroVmErrorCode } from '@reve/sandbox-microvm'
import type { SessionLogErrorCode } from '@reve/session-log'

/** Exit codes of `reve`. */
export const exitCode = {
  done: 0,
  failed: 1,
  usage: 2,
  configuration: 3,
  noVm: 4,
  locked: 5,
  corrupt: 6,
  /** `reve exec` only: reve itself failed, so that it is not taken for the guest's code. */
  execFailed: 125,
  interrupted: 130,
} as const

/** Every code that can reach a command; a new one in a package below does not compile until it is placed here. */
type Code =
  | AgentErrorCode
  | ChannelErrorCode
  | ConfinedErrorCode
  | HarnessErrorCode
  | LockFileError['code']
  | LockHeldError['code']
  | 'lua_aborted'
  | MicroVmErrorCode
  | ModelsError['code']
  | SessionLogErrorCode
  | YamlError['code']

const byErrorCode = {
  not_an_agent: exitCode.configuration,
  bad_config: exitCode.configuration,
  no_model: exitCode.configuration,
  unknown_tool: exitCode.usage,
  unknown_command: exitCode.usage,
  lua_aborted: exitCode.interrupted,
  no_session: exitCode.failed,
  no_checkpoint: exitCode.failed,
  // models.yml
  yaml_syntax: exitCode.configuration,
  yaml_schema: exitCode.configuration,
  unknown_model: exitCode.configuration,
  bad_provider: exitCode.configuration,
  bad_variable: exitCode.configuration,
  // the microVM
  no_backend: exitCode.noVm,
  backend_unavailable: exitCode.noVm,
  missing_program: exitCode.noVm,
  unsupported_host: exitCode.noVm,
  image_failed: exitCode.noVm,
  boot_failed: exitCode.noVm,
  bootstrap_failed: exitCode.noVm,
  guest_lost: exitCode.noVm,
  stopped: exitCode.failed,
  bad_spec: exitCode.configuration,
  busy: exitCode.locked,
  aborted: exitCode.interrupted,
  not_permitted: exitCode.failed,
  no_space: exitCode.failed,
  file_failed: exitCode.failed,
  input_failed: exitCode.failed,
  // sessions
  locked: exitCode.locked,
  lock_held: exitCode.locked,
  lock_unusable: exitCode.failed,
  corrupt: exitCode.corrupt,
  corrupt_session: exitCode.corrupt,
  foreign_format: exitCode.corrupt,
  newer_version: exitCode.corrupt,
  older_version: exitCode.corrupt,
  not_a_session: exitCode.corrupt,
  exists: exitCode.failed,
  faulted: exitCode.failed,
  bad_draft: exitCode.failed,
  unknown_entry: exitCode.failed,
  // the run
  lane_busy: exitCode.locked,
  lane_idle: exitCode.failed,
  needs_recovery: exitCode.failed,
  nothing_to_continue: exitCode.failed,
  nothing_to_compact: exitCode.failed,
  too_deep: exitCode.failed,
  invalid_options: exitCode.configuration,
  log_in_use: exitCode.locked,
  invalid_message: exitCode.usage,
  invalid_tools: exitCode.configuration,
  log_faulted: exitCode.failed,
  closed: exitCode.failed,
  // channels
  inbox_full: exitCode.failed,
  key_reused: exitCode.failed,
  invalid_value: exitCode.failed,
  foreign_file: exitCode.corrupt,
  bad_channel: exitCode.configuration,
  // files
  escapes_root: exitCode.failed,
  is_link: exitCode.failed,
  not_found: exitCode.failed,
  not_a_file: exitCode.failed,
  not_a_folder: exitCode.failed,
  too_large: exitCode.failed,
  io: exitCode.failed,
} as const satisfies Readonly<Record<Code, number>>

const isPlaced = (code: string): code is Code => Object.hasOwn(byErrorCode, code)

/** The exit code for anything thrown; what is not one of our typed errors is a failure. */
export function exitCodeOf(error: unknown): number {
  if (!isReveError(error)) return exitCode.failed
  const own = isPlaced(error.code) ? byErrorCode[error.code] : exitCode.failed
  // What a tool or a session failed of says more than that it failed.
  return own === exitCode.failed && error.cause !== undefined ? exitCodeOf(error.cause) : own
}
