import type { Store } from '@reve/content-store'
import type { GitCredential } from './credentials.ts'
import type { Commit } from './log.ts'
import type { Note } from './notes.ts'
import type { Person } from './person.ts'
import type { GitProgress } from './progress.ts'
import type { PushResult } from './push.ts'
import type { HttpOptions, SshOptions } from './surroundings.ts'

/**
 * - `store`: where trees come from and go to.
 * - `reposDir`: folder of the bare clones, `<name>.git` each; made 0700 if it is not there. While a verb runs no other process works in it.
 * - `identity`: the committer of every export.
 * - `git`: the program, default `git`, looked for in the system's usual places.
 * - `credentials`: what this computer may show to other sides, or how to get it (asked at each import and push); default none.
 * - `ssh`, `http`: how hosts and servers are reached.
 * - `now`: milliseconds since 1970, for commit times. `ownUid`: user id of this process, to judge whose hooks a local push would run.
 */
export type GitBridgeOptions = {
  readonly store: Store
  readonly reposDir: string
  readonly identity: Person
  readonly git?: string
  readonly credentials?: readonly GitCredential[] | (() => Promise<readonly GitCredential[]>)
  readonly ssh?: SshOptions
  readonly http?: HttpOptions
  readonly now?: () => number
  readonly ownUid?: number
}

/** `src`: absolute path or address; `name`: the clone's name and the store's ref; `ref`: branch, tag, full reference or commit, default the remote's HEAD. */
export type ImportRequest = {
  readonly src: string
  readonly name: string
  readonly ref?: string
  /**
   * Has no effect on an import, and is taken so that a caller may say it: a commit holds just what was committed, and a file
   * that is committed although a `.gitignore` names it is part of it.
   */
  readonly gitignore?: boolean
  /** Who did it, for the history of the store's ref. */
  readonly actor: string
  readonly signal?: AbortSignal
  /** Called now and then. */
  readonly onProgress?: (progress: GitProgress) => void
  /** Called in the transaction that moves the store's ref: what it writes to the store's database stands or falls with it. */
  readonly alongside?: (result: ImportResult) => void
}

/** `commit` is null for an empty repository. `ref`: the store's ref that was set. `gitRef`: the reference that was read, or the commit if one was named. */
export type ImportResult = {
  readonly tree: string
  readonly commit: string | null
  readonly ref: string
  readonly gitRef: string | null
  readonly notes: readonly Note[]
}

/** `tree`: a tree id or a ref of the store. `startPoint`: where a new branch starts, default the clone's current commit (what was imported last). `author`: `Name <email>` or a person, default the committer. */
export type ExportRequest = {
  readonly name: string
  readonly tree: string
  readonly branch: string
  readonly message: string
  readonly startPoint?: string
  readonly author?: string | Person
  readonly actor: string
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: GitProgress) => void
}

/** `commit`: where the branch stands now. `unchanged`: the tree was that of the parent, so no commit was made. */
export type ExportResult = {
  readonly commit: string
  readonly branch: string
  readonly parent: string | null
  readonly gitTree: string
  readonly unchanged: boolean
  readonly notes: readonly Note[]
}

/** `remote`: `origin` (default), an absolute path or an address. */
export type PushRequest = {
  readonly name: string
  readonly branch: string
  readonly remote?: string
  readonly actor: string
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: GitProgress) => void
}

/** `n`: commits at most, 20 by default, 1,000 at most. `ref`: history of one branch, tag or commit; default all branches of the clone. */
export type LogRequest = {
  readonly name: string
  readonly n?: number
  readonly ref?: string
  readonly signal?: AbortSignal
}

/** Git repositories to trees of the store and back. Verbs that change a clone run one after the other. All throw GitError. */
export interface GitBridge {
  /** Clones or fetches, reads the tree of a commit into the store and sets the ref `name` to it. */
  import(request: ImportRequest): Promise<ImportResult>
  /** Writes a tree as one commit on a branch of the clone. */
  export(request: ExportRequest): Promise<ExportResult>
  /** Pushes a branch of the clone, never with force. */
  push(request: PushRequest): Promise<PushResult>
  /** The newest commits, newest first. */
  log(request: LogRequest): Promise<readonly Commit[]>
}
