/**
 * The agent directory: what `reve` does with one, without a terminal.
 *
 * @packageDocumentation
 */
export { openAgent } from './agent.ts'
export type { Agent, AgentHost, AgentInfo, AgentSession, Rewound } from './agent.ts'
export { agentRoot } from './definition.ts'
export { AgentError } from './errors.ts'
export type { AgentErrorCode } from './errors.ts'
export { scaffold } from './scaffold.ts'
export type { MachineHosts, ScaffoldEntry, ScaffoldReport } from './scaffold.ts'
export type { Restored } from './checkpoints.ts'
export type { Skill, Skills } from './skills.ts'
export { newestFile, newSessionFile, wasInterrupted } from './sessions.ts'
