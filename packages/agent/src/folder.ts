/**
 * An agent's folder as it lies there, without what a run needs: what starts in an instant.
 *
 * @packageDocumentation
 */
import type { Definition } from './definition.ts'

export { agentRoot } from './agent-root.ts'
export { AgentError, type AgentErrorCode } from './errors.ts'
export { newestFile, newSessionFile, wasInterrupted } from './sessions.ts'

/** Checks all of the agent's files, as `openAgent` does; close its `lua`. */
export const loadDefinition = async (folder: string): Promise<Definition> => {
  const definition = await import('./definition.ts')
  return definition.loadDefinition(folder)
}
