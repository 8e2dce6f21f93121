import type { Tool } from '@reve/harness'
import type { MicroVm } from '@reve/sandbox-microvm'
import { bashTool } from './command-tools.ts'
import { editTool, readTool, writeTool } from './file-tools.ts'
import { createNetworkNotes, type NetworkNotes } from './network-notes.ts'
import type { Clock } from './output-progress.ts'
import { globTool, grepTool, lsTool } from './search-tools.ts'
import { taskTool } from './task-tool.ts'

/** What the built-in tools share besides the VM. */
export type GuestToolParts = {
  /** What the edge of the VM's network tells; default: nothing is told. */
  readonly network?: NetworkNotes
  /** Default: the system's. */
  readonly clock?: Clock
}

/**
 * The built-in tools, all of which work in the guest: `bash`, `read`, `write`, `edit`, `ls`, `glob`, `grep` and `task`. Those that
 * only read are `safe`: they may run side by side, and again after a crash.
 */
export const guestTools = (
  vm: MicroVm,
  { network = createNetworkNotes(), clock }: GuestToolParts = {},
): readonly Tool[] => [
  bashTool(vm, network, clock),
  readTool(vm),
  writeTool(vm),
  editTool(vm),
  lsTool(vm),
  globTool(vm),
  grepTool(vm),
  taskTool,
]
