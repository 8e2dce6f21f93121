/**
 * Actions: one run of a command on a tree, in a sandbox, answered from the cache when it is known. A command that fails is a
 * result; an ActionError says that there is none.
 */
export { defaultTimeoutS, sandboxNames } from './action.ts'
export type { Action, NamedCache, SandboxName } from './action.ts'
export { ActionError } from './errors.ts'
export type { ActionErrorCode } from './errors.ts'
export { HOST_PROGRAMS } from './host-process.ts'
export type { SpawnReason } from './host-process.ts'
export { hostFingerprint } from './host-fingerprint.ts'
export type { ActionRecord, ActionResult } from './result.ts'
export { createActionRunner } from './runner.ts'
export type { ActionRunner, ActionRunnerOptions, RunOptions } from './runner.ts'
export type { Isolation, LeftRunning } from './sandbox.ts'
export type { ActionUser } from './slot.ts'
export { toolCacheDirectories } from './tool-caches.ts'
export type { OnOutput } from './watch.ts'
