import { ReveError } from '@reve/base'

/**
 * Why a VM could not do what was asked.
 *
 * `no_backend` nothing here can boot a VM · `backend_unavailable` the named backend is not in this version ·
 * `missing_program` a program of the host is missing, the message has the command that installs it · `unsupported_host`
 * this system or processor is not supported · `image_failed` kernel or root file system could not be built ·
 * `boot_failed` the VM did not come up · `bootstrap_failed` a bootstrap command failed · `busy` another process runs this
 * VM · `bad_spec` a value of the caller is wrong · `guest_lost` the VM died or broke the protocol · `stopped` it was
 * stopped while something ran · `aborted` the caller's signal ended a start, or the copying of a file · `input_failed`
 * the source of a command's or file's input failed, the cause says how · of files in the guest: `not_found` ·
 * `not_a_file` a folder, a pipe or a device · `not_permitted` · `no_space` the disk or the quota is full · `file_failed`
 * anything else, the message has the guest's own word for it.
 */
export type MicroVmErrorCode =
  | 'no_backend'
  | 'backend_unavailable'
  | 'missing_program'
  | 'unsupported_host'
  | 'image_failed'
  | 'boot_failed'
  | 'bootstrap_failed'
  | 'busy'
  | 'bad_spec'
  | 'guest_lost'
  | 'stopped'
  | 'aborted'
  | 'input_failed'
  | 'not_found'
  | 'not_a_file'
  | 'not_permitted'
  | 'no_space'
  | 'file_failed'

/** Every expected failure of this package; a command's own exit code is data and never one of these. */
export class MicroVmError extends ReveError<MicroVmErrorCode> {
  override readonly name = 'MicroVmError'
}
