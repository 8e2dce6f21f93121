import { isReveError } from '@reve/base'

/** Exit codes of `kc`. */
export const exitCode = {
  done: 0,
  failed: 1,
  usage: 2,
  configuration: 3,
  locked: 5,
  corrupt: 6,
  interrupted: 130,
} as const

const byErrorCode: Readonly<Record<string, number>> = {
  not_a_computer: exitCode.configuration,
  bad_configuration: exitCode.configuration,
  bad_option: exitCode.configuration,
  bad_seat: exitCode.usage,
  address_in_use: exitCode.failed,
  bad_address: exitCode.configuration,
  unsupported_filesystem: exitCode.configuration,
  locked: exitCode.locked,
  corrupt: exitCode.corrupt,
  newer_format: exitCode.corrupt,
}

/** The exit code for anything thrown. */
export const exitCodeOf = (error: unknown): number =>
  isReveError(error) ? (byErrorCode[error.code] ?? exitCode.failed) : exitCode.failed
