import { stat } from 'node:fs/promises'
import { join, resolve, sep } from 'node:path'
import { agentRoot, newestFile, newSessionFile } from '@reve/agent/folder'
import { codeOf } from '@reve/base'
import { findSession } from '@reve/session-log'
import { UsageError } from './arguments.ts'

/** Where an agent keeps its sessions. */
export const sessionsOf = (root: string): string => join(root, '.reve', 'sessions')

/** The newest session of the agent of a folder. */
export async function newest(folder: string): Promise<string> {
  const file = await newestFile(sessionsOf(await agentRoot(folder)))
  if (file === undefined) throw new UsageError('this agent has no sessions yet', 'sessions')
  return file
}

/** The file that a word means. What is nowhere is taken as a path, so that the refusal names it. */
export async function sessionFile(folder: string, word: string): Promise<string> {
  const here = resolve(folder, word)
  if (word.includes(sep) || (await exists(here))) return here
  const root = await agentRoot(folder).catch((error: unknown) => {
    if (codeOf(error) === 'not_an_agent') return undefined
    throw error
  })
  if (root === undefined) return here
  const own = join(sessionsOf(root), word)
  return (await exists(own)) ? own : ((await findSession(sessionsOf(root), word)) ?? here)
}

/** Without a word, a session of this agent's that is the newest: `reve run --continue` goes on with it. */
export async function targetFile(folder: string, word: string | undefined): Promise<string> {
  return word === undefined ? newSessionFile(sessionsOf(await agentRoot(folder))) : resolve(folder, word)
}

const exists = (file: string): Promise<boolean> =>
  stat(file).then(
    () => true,
    () => false,
  )
