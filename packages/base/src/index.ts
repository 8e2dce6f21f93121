/**
 * What every package of the house stands on. Nothing here reads the environment, prints or exits.
 *
 * @packageDocumentation
 */
export { writeFileAtomic } from './atomic.ts'
export type { AtomicOptions } from './atomic.ts'
export { ConfinedError, openConfined } from './confined.ts'
export type { Confined, ConfinedEntry, ConfinedErrorCode } from './confined.ts'
export { codeOf, isReveError, messageOf, ReveError } from './errors.ts'
export type { ReveErrorOptions } from './errors.ts'
export { didYouMean, nearest } from './hints.ts'
export { createIdSource, timeOrderedId } from './ids.ts'
export type { RandomBytes } from './ids.ts'
export { describeIssues } from './issues.ts'
export type { Described } from './issues.ts'
export { acquireLock, lockHolder, LockFileError, LockHeldError, tryAcquireLock } from './lock.ts'
export type { Lock } from './lock.ts'
export { redactSecrets, sanitiseLine, sanitiseTerminal, unfinishedSecret } from './sanitise.ts'
