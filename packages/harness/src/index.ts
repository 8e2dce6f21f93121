/**
 * Durable agent runs on a session log: the intent is written before the effect, so that a process may die at any
 * instant and its successor knows what was going on. Knows nothing of files, sandboxes or terminals.
 *
 * @packageDocumentation
 */
export type { Redact } from './clean.ts'
export { HarnessError, type HarnessErrorCode, type Place } from './errors.ts'
export type { HarnessEvent, HarnessEventBody, Listener, SettledCall } from './events.ts'
export {
  createHarness,
  type Harness,
  type LaneOption,
  type LaneSnapshot,
  type LaneStatus,
  type ObserveOptions,
  type PromptOptions,
  type RunOptions,
  type Snapshot,
  type Stoppable,
} from './harness.ts'
export type { HookContext, Hooks } from './hooks.ts'
export { type Budget, type BudgetLimit, type LedgerReport, readLedger, type Spending } from './ledger.ts'
export type { LiveLane, LiveTool } from './live.ts'
export type { LoopLimits } from './loop-guard.ts'
export type { CompactionResult } from './manual-compaction.ts'
export type { Observed } from './observe.ts'
export type { Corruption, CorruptionReason } from './operations.ts'
export type { CompactionOptions, Effects, HarnessOptions, Limits, QueueMode } from './options.ts'
export { project, waitsForModel } from './project.ts'
export { pendingMessages, type QueuedMessage } from './queue.ts'
export type { CompactionReason, Delivery, Intent, Outcome, RecordPayload, RecordType } from './records.ts'
export type { RecoveredLane, RecoveryReport } from './recover.ts'
export { type Declared, type OperationPlan, type RecoveryPlan, type RecoveryStep, reduce } from './reduce.ts'
export type { RunResult } from './run.ts'
export type { RunOverrides, SubagentOptions, Tool, ToolContext, ToolOutput } from './tool.ts'
