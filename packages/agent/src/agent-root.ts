import { realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError } from './errors.ts'

/** The real path of `folder` if it is an agent's. */
export async function agentRoot(folder: string): Promise<string> {
  const root = await realpath(folder).catch(() => undefined)
  if (root !== undefined) {
    for (const file of ['agent.lua', 'instructions.md']) {
      if ((await stat(join(root, file)).catch(() => undefined))?.isFile()) return root
    }
  }
  throw new AgentError(
    'not_an_agent',
    `not an agent directory: ${root ?? folder} has neither agent.lua nor instructions.md; run "reve init" there, or go to one that has`,
  )
}
