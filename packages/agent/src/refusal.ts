import { isReveError, type ReveError } from '@reve/base'
import type { Tool } from '@reve/harness'
import { MicroVmError, type MicroVmErrorCode } from '@reve/sandbox-microvm'

/** No VM can be had here, whatever a model tries next. */
const hopeless: readonly MicroVmErrorCode[] = [
  'no_backend',
  'backend_unavailable',
  'missing_program',
  'unsupported_host',
  'image_failed',
  'boot_failed',
  'bootstrap_failed',
]

/** The refusal of the microVM that a tool failed of, also through Lua; undefined when it failed of something else. */
function noVm(error: unknown): MicroVmError | undefined {
  if (error instanceof MicroVmError) return hopeless.includes(error.code) ? error : undefined
  return isReveError(error) ? noVm(error.cause) : undefined
}

/** The same tool; when it fails since there is no VM, `refused` is done before its result is written. */
export const refusing = (tool: Tool, refused: (error: ReveError) => Promise<void>): Tool => ({
  ...tool,
  run: async (args, context) => {
    try {
      return await tool.run(args, context)
    } catch (error) {
      const refusal = noVm(error)
      if (refusal !== undefined) await refused(refusal)
      throw error
    }
  },
})
