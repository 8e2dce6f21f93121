import type { Tool } from '@reve/harness'
import type { SessionLog } from '@reve/session-log'
import { type Checkpoints, lastCheckpoint, noteCheckpoint } from './checkpoints.ts'

/** Where checkpoints are taken from; undefined with a reason when they cannot be. */
export type CheckpointSource = () => Promise<Checkpoints | { readonly reason: string }>

/**
 * A tool whose effects on `workspace/` are checkpointed: the files are captured before it, in case somebody else changed
 * them since, and after it, and noted in the log where they differ. A tool that only reads stays as it is. What keeps a
 * checkpoint from being taken is shown, and is no failure of the tool.
 */
export function checkpointed(tool: Tool, log: SessionLog, source: CheckpointSource): Tool {
  if (tool.replay === 'safe') return tool
  return {
    ...tool,
    run: async (args, context) => {
      const checkpoints = await source()
      if ('reason' in checkpoints) {
        context.progress(`no checkpoint: ${checkpoints.reason}`)
        return tool.run(args, context)
      }
      const note = async (entryId: string | null): Promise<void> => {
        const taken = await checkpoints.capture()
        if (taken.type === 'skipped') context.progress(`no checkpoint: ${taken.reason}`)
        else if (taken.tree !== lastCheckpoint(log)) await noteCheckpoint(log, context.lane, entryId, taken.tree)
      }
      await note(log.leaf(context.lane))
      try {
        return await tool.run(args, context)
      } finally {
        // Also of a tool that failed or was stopped: what it did until then has happened. Its result has this id.
        await note(context.idempotencyKey)
      }
    },
  }
}
