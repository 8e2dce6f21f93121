/**
 * The agent directory: what `reve` does with one, without a terminal.
 *
 * @packageDocumentation
 */
export { openAgent } from './agent.ts'
export type { Agent, AgentHost, AgentInfo, AgentSession, Rewound } from './agent.ts'
export { agentRoot } from './agent-root.ts'
export { AgentError } from './errors.ts'
export type { AgentErrorCode } from './errors.ts'
export { startHeartbeats } from './heartbeats/runner.ts'
export { parseHeartbeats } from './heartbeats/heartbeat-file.ts'
export { sessionBeats } from './heartbeats/beat.ts'
export { startChannels } from './channels/runner.ts'
export { sessionConversation } from './channels/conversation.ts'
export { fileDropChannel } from './channels/file-drop.ts'
export { httpChannel } from './channels/http.ts'
export { scaffold } from './scaffold.ts'
export type { MachineHosts, ScaffoldEntry, ScaffoldReport } from './scaffold.ts'
export type { AgentCommand, CommandResult } from './lua-commands.ts'
export type { McpStatus } from './mcp-tools.ts'
export type { Restored } from './checkpoints.ts'
export type { Skill, Skills } from './skills.ts'
export { newestFile, newSessionFile, wasInterrupted } from './sessions.ts'
export type {
  Answer,
  Channel,
  ChannelInbox,
  IncomingMessage,
  InboxMessage,
  MessageStatus,
  Receipt,
} from './channels/channel.ts'
export { ChannelError } from './channels/errors.ts'
export type { ChannelErrorCode } from './channels/errors.ts'
export type { ChannelEvent, Channels } from './channels/runner.ts'
export { codeChannel } from './channels/scripted.ts'
export type { ChannelCode, ChannelHost } from './channels/scripted.ts'
export type { ChannelState, StateValue } from './channels/state.ts'
export { HeartbeatError } from './heartbeats/errors.ts'
export type { HeartbeatErrorCode } from './heartbeats/errors.ts'
export type { HeartbeatTask } from './heartbeats/heartbeat-file.ts'
export type { BeatMessage, BeatOutcome, PastBeat } from './heartbeats/plan.ts'
export type { Beat, HeartbeatEvent, Heartbeats, HeartbeatStatus } from './heartbeats/runner.ts'
export type { Schedule } from './heartbeats/schedule.ts'
