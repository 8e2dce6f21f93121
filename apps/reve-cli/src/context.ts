import { openAgent, type Agent } from '@reve/agent'
import { paint, type Output } from './output.ts'
import { surroundings, vmHost } from './surroundings.ts'
import { networkNotes, vmProgress } from './vm-progress.ts'

/** What every command gets. */
export type Context = {
  /** The folder that reve was started in. */
  readonly folder: string
  readonly env: NodeJS.ProcessEnv
  readonly output: Output
  /** Aborted by the first Ctrl-C or SIGTERM; the second one ends the process. */
  readonly signal: AbortSignal
}

/** Opens the agent of the current folder with this machine's surroundings. */
export function agentHere({ folder, env, output }: Context): Promise<Agent> {
  const around = surroundings(env)
  return openAgent(folder, {
    env: around.env,
    vm: vmHost(around, vmProgress(output)),
    onEgress: networkNotes(output),
    onNotice: (notice) => output.note(paint('yellow', '  ! '), notice),
    onLog: (source, text) => output.note(paint('dim', `  · ${source}: `), text),
  })
}
