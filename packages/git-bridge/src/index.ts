/**
 * Git repositories to trees of a content store and back: import, export, push, log. Nothing is ever checked out, no hook
 * or helper of a repository runs, and a round trip gives the same git tree.
 */
export { createGitBridge } from './bridge.ts'
export type {
  ExportRequest,
  ExportResult,
  GitBridge,
  GitBridgeOptions,
  ImportRequest,
  ImportResult,
  LogRequest,
  PushRequest,
} from './requests.ts'
export { parseGitCredentials, readGitCredentials } from './credentials.ts'
export type { GitCredential } from './credentials.ts'
export { GitError } from './errors.ts'
export type { GitErrorCode } from './errors.ts'
export { HOST_PROGRAMS } from './host-process.ts'
export type { SpawnReason } from './host-process.ts'
export type { Commit } from './log.ts'
export type { Note, NoteKind } from './notes.ts'
export { parsePerson } from './person.ts'
export type { Person } from './person.ts'
export type { GitProgress } from './progress.ts'
export type { PushResult } from './push.ts'
export type { HttpOptions, SshOptions } from './surroundings.ts'
