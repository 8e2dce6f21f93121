import { isReveError } from '@reve/base'

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

const byErrorCode: Readonly<Record<string, number>> = {
  not_an_agent: exitCode.configuration,
  bad_config: exitCode.configuration,
  no_model: exitCode.configuration,
  unknown_tool: exitCode.usage,
  no_session: exitCode.failed,
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
  bad_spec: exitCode.configuration,
  busy: exitCode.locked,
  // sessions
  locked: exitCode.locked,
  lock_held: exitCode.locked,
  corrupt: exitCode.corrupt,
  corrupt_session: exitCode.corrupt,
  foreign_format: exitCode.corrupt,
  newer_version: exitCode.corrupt,
  older_version: exitCode.corrupt,
  not_a_session: exitCode.corrupt,
  aborted: exitCode.interrupted,
}

/** The exit code for anything thrown; what is not one of our typed errors is a failure. */
export const exitCodeOf = (error: unknown): number =>
  isReveError(error) ? (byErrorCode[error.code] ?? exitCode.failed) : exitCode.failed
