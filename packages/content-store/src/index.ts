/**
 * Content-addressed blobs and nested Merkle trees, refs that move by compare-and-swap, branches with three-way merge,
 * snapshots, search and edits on trees as values, and folders in and out. The format is in docs/store-format.md.
 *
 * @packageDocumentation
 */
export type { BackupOptions, BackupReport } from './backup.ts'
export type { Branches, MergeBase, MergeOptions, MergeResult } from './branches.ts'
export type { CaptureOptions, CaptureReport, SkipReason } from './capture.ts'
export { formatVersion } from './database.ts'
export type { SqlDatabase, SqlStatement, SqlValue } from './database.ts'
export { StoreError } from './errors.ts'
export type { StoreErrorCode, StoreErrorDetails } from './errors.ts'
export type {
  EditResult,
  FsActions,
  ListEntry,
  ListResult,
  OutputResult,
  ReadResult,
  RemoveResult,
  WriteResult,
} from './fs.ts'
export type { FsckOptions, FsckProblem, FsckReport } from './fsck.ts'
export type { Garbage, GarbageOptions } from './garbage.ts'
export type { GlobOptions, GlobResult } from './glob.ts'
export type { GrepMatch, GrepOptions, GrepResult } from './grep.ts'
export { HOST_PROGRAMS } from './host-process.ts'
export type { IndexEntry, LayoutIndex, LayoutOptions, LayoutReport } from './layout.ts'
export type { ConflictKind, MergeConflict } from './merge.ts'
export { checkRefName, nameFault } from './names.ts'
export { decodePath, encodePath } from './path.ts'
export type { StoreStats } from './stats.ts'
export type { UpdateOptions, UpdateReport } from './update.ts'
export type { Refs } from './refs.ts'
export type { Rollback, Snapshot, Snapshots } from './snapshots.ts'
export { lockPath, openStore } from './store.ts'
export type { OpenOptions, Store } from './store.ts'
export type { TextView, ViewOptions } from './text-view.ts'
export { treeVersion } from './tree-encoding.ts'
export type { ChangeKind, DiffOptions, DiffResult, FileDiff } from './tree-text-diff.ts'
export type {
  Act,
  BlobId,
  Edit,
  EntryKind,
  Hash,
  RefMove,
  RefState,
  StorePath,
  Target,
  TreeChange,
  TreeEntry,
  TreeId,
  Walked,
} from './types.ts'
