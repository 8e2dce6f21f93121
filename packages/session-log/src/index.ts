export type { AppendFile, OpenFile } from './append-file.ts'
export type { Draft } from './draft.ts'
export { SessionLogError, type SessionLogErrorCode, type SessionLogErrorDetails } from './errors.ts'
export {
  type EntryLine,
  FORMAT_VERSION,
  type Header,
  isEntry,
  type Line,
  type LineProblem,
  type LineProblemCode,
  type RecordLine,
} from './format.ts'
export { type ForkOptions, type ForkReport, forkSession } from './fork.ts'
export type { Json, JsonArray, JsonObject } from './json.ts'
export { labelDraft, labels } from './labels.ts'
export { findSession, listSessions, type SessionSummary } from './list.ts'
export type { Durability, Repair, SessionLog } from './log.ts'
export { NAME_FACT, nameDraft, restateName, sessionName } from './names.ts'
export { salvageSession, type SalvageReport } from './salvage.ts'
export type { Tail } from './scan.ts'
export {
  createSession,
  type CreateOptions,
  type NewSession,
  openSession,
  type OpenOptions,
  readSession,
} from './session.ts'
export { verifySession, type VerifyProblem, type VerifyReport } from './verify.ts'
export type { SessionView } from './view.ts'
