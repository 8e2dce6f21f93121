import type { Store } from '@reve/content-store'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { GitError } from './errors.ts'
import { fetchAll, initClone, sourceOf } from './fetch.ts'
import { GitSession, scratchPrefix } from './git.ts'
import { clearLeftovers, Queues } from './locks.ts'
import { readLog, type Commit } from './log.ts'
import { checkBranch, checkRepoName, checkRevision, parseSource, textOf, type Source } from './names.ts'
import { Notes, type Note } from './notes.ts'
import { checkPerson, parsePerson, type Person } from './person.ts'
import { checkTarget, pushBranch, type PushResult } from './push.ts'
import { commitOf, findCommit, treeOf } from './refs.ts'
import { importTree } from './tree-in.ts'
import { exportRef, exportTree } from './tree-out.ts'

/**
 * - `store`: where trees come from and go to.
 * - `reposDir`: folder of the bare clones, `<name>.git` each; made 0700 if it is not there. One process owns it.
 * - `identity`: the committer of every export.
 * - `git`: the program, default `git`, looked for in the system's usual places.
 * - `now`: milliseconds since 1970, for commit times. `ownUid`: user id of this process, to judge whose hooks a local push would run.
 */
export type GitBridgeOptions = {
  readonly store: Store
  readonly reposDir: string
  readonly identity: Person
  readonly git?: string
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

/** `tree`: a tree id or a ref of the store. `startPoint`: where a new branch starts, default the clone's HEAD. `author`: `Name <email>` or a person, default the committer. */
export type ExportRequest = {
  readonly name: string
  readonly tree: string
  readonly branch: string
  readonly message: string
  readonly startPoint?: string
  readonly author?: string | Person
  readonly actor: string
  readonly signal?: AbortSignal
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
}

/** `n`: commits at most, 20 by default, 1,000 at most. `ref`: history of one branch, tag or commit; default all branches of the clone. */
export type LogRequest = {
  readonly name: string
  readonly n?: number
  readonly ref?: string
  readonly signal?: AbortSignal
}

/** Git repositories to trees of the store and back. Verbs on one clone run one after the other. All throw GitError. */
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

/** Opens the bridge; nothing is started before the first verb. */
export function createGitBridge(options: GitBridgeOptions): GitBridge {
  return new Bridge(options)
}

class Bridge implements GitBridge {
  readonly #store: Store
  readonly #reposDir: string
  readonly #committer: Person
  readonly #program: string
  readonly #now: () => number
  readonly #ownUid: number | undefined
  readonly #queues = new Queues()
  /** Clones that this process has looked at: what a dead one left in them is gone. */
  readonly #clean = new Set<string>()
  #prepared: Promise<void> | undefined

  constructor(options: GitBridgeOptions) {
    this.#store = options.store
    this.#reposDir = options.reposDir
    this.#committer = checkPerson(options.identity)
    this.#program = options.git ?? 'git'
    this.#now = options.now ?? Date.now
    this.#ownUid = options.ownUid ?? process.getuid?.()
  }

  async import(request: ImportRequest): Promise<ImportResult> {
    const source = parseSource(request.src)
    if (request.ref !== undefined) checkRevision(request.ref)
    return this.#verb(request, await safeDirectoriesOf(source), async (git, dir) => {
      const notes = new Notes()
      const { head, notes: branchNotes } = await this.#cloneOrFetch(git, dir, request.name, source, request.ref)
      for (const note of branchNotes) notes.add(note.kind, `${note.branch}: ${note.detail}`)
      const found = await this.#requested(git, dir, request.ref, head)
      if (found === undefined) notes.add('empty_repository')
      const tree =
        found === undefined ? this.#store.emptyTree : await importTree(git, dir, found.commit, this.#store, notes)
      const result = {
        tree,
        commit: found?.commit ?? null,
        ref: request.name,
        gitRef: found?.ref ?? null,
        notes: notes.list(),
      }
      this.#store.transaction(() => {
        this.#setRef(request, result)
        request.alongside?.(result)
      })
      return result
    })
  }

  async #cloneOrFetch(
    git: GitSession,
    dir: string,
    name: string,
    source: Source,
    wanted: string | undefined,
  ): ReturnType<typeof fetchAll> {
    if (existsSync(dir)) {
      if ((await sourceOf(git, dir)) !== textOf(source)) {
        throw new GitError('bad_argument', `the repository ${name} was imported from another address`, {
          hint: 'import this one under another name',
        })
      }
      return fetchAll(git, dir, wanted)
    }
    // A clone appears whole or not at all.
    const parent = await mkdtemp(join(this.#reposDir, scratchPrefix))
    try {
      const fresh = join(parent, 'clone.git')
      await initClone(git, fresh, textOf(source))
      const fetched = await fetchAll(git, fresh, wanted)
      await rename(fresh, dir)
      return fetched
    } finally {
      await rm(parent, { recursive: true, force: true })
    }
  }

  async #requested(
    git: GitSession,
    dir: string,
    ref: string | undefined,
    head: Awaited<ReturnType<typeof fetchAll>>['head'],
  ): Promise<{ readonly commit: string; readonly ref: string } | undefined> {
    if (ref !== undefined) return findCommit(git, dir, ref, 'remote')
    switch (head.kind) {
      case 'branch':
        return findCommit(git, dir, `refs/heads/${head.branch}`, 'remote')
      case 'detached':
        return { commit: head.commit, ref: head.commit }
      case 'none': {
        const any = await git.text(dir, [
          'for-each-ref',
          '--count=1',
          '--format=%(refname)',
          'refs/remotes/origin',
          'refs/tags',
        ])
        if (any === '') return undefined
        throw new GitError('bad_ref', "the repository's HEAD names no branch", {
          hint: 'say which branch to import with ref',
        })
      }
      default:
        return head satisfies never
    }
  }

  #setRef(request: ImportRequest, result: ImportResult): void {
    const { refs } = this.#store
    const note = `git import${result.commit === null ? '' : ` of ${result.commit}`}`
    const known = refs.find(request.name)
    if (known === undefined) refs.create(request.name, result.tree, { actor: request.actor, note })
    else
      refs.move(request.name, {
        expectedTree: known.tree,
        expectedRev: known.rev,
        newTree: result.tree,
        actor: request.actor,
        note,
      })
  }

  async export(request: ExportRequest): Promise<ExportResult> {
    const branch = checkBranch(request.branch)
    const author =
      request.author === undefined
        ? this.#committer
        : typeof request.author === 'string'
          ? parsePerson(request.author)
          : checkPerson(request.author)
    if (request.message.trim() === '' || request.message.includes('\0'))
      throw new GitError('bad_argument', 'a commit needs a message, without NUL characters')
    const tree = this.#store.refs.resolve(request.tree)
    return this.#verb(request, [], async (git, dir) => {
      const notes = new Notes()
      const { at, parent } = await this.#base(git, dir, branch, request.startPoint, notes)
      const text = {
        author,
        committer: this.#committer,
        seconds: Math.floor(this.#now() / 1000),
        message: request.message,
        parent,
      }
      const commit = await exportTree(git, dir, tree, this.#store, text, notes)
      try {
        const gitTree = await treeOf(git, dir, commit)
        const unchanged = parent !== undefined && (await treeOf(git, dir, parent)) === gitTree
        const tip = unchanged ? parent : commit
        await this.#moveBranch(git, dir, branch, tip, at)
        return { commit: tip, branch, parent: parent ?? null, gitTree, unchanged, notes: notes.list() }
      } finally {
        await git.text(dir, ['update-ref', '-d', exportRef])
      }
    })
  }

  /** Where the branch stands (undefined: nowhere yet), and the commit that the new one follows (undefined: it is the first). */
  async #base(
    git: GitSession,
    dir: string,
    branch: string,
    startPoint: string | undefined,
    notes: Notes,
  ): Promise<{ readonly at: string | undefined; readonly parent: string | undefined }> {
    const start = startPoint === undefined ? undefined : await findCommit(git, dir, startPoint, 'clone')
    const at = await commitOf(git, dir, `refs/heads/${branch}`)
    if (at !== undefined) {
      if (start !== undefined && start.commit !== at) notes.add('start_point_ignored', branch)
      return { at, parent: at }
    }
    return { at, parent: start?.commit ?? (await commitOf(git, dir, 'HEAD')) }
  }

  async #moveBranch(git: GitSession, dir: string, branch: string, to: string, from: string | undefined): Promise<void> {
    const answer = await git.ask(dir, ['update-ref', `refs/heads/${branch}`, to, from ?? '0'.repeat(to.length)])
    if (answer.code === 0) return
    if (/cannot lock ref .* exists;? cannot create|exists/.test(answer.stderr)) {
      throw new GitError(
        'bad_name',
        `the branch ${branch} cannot exist beside another one of the clone: one would be the folder of the other`,
      )
    }
    throw new GitError('io', `the branch ${branch} could not be moved: ${answer.stderr.slice(0, 500)}`)
  }

  async push(request: PushRequest): Promise<PushResult> {
    const branch = checkBranch(request.branch)
    const target = request.remote === undefined || request.remote === 'origin' ? undefined : parseSource(request.remote)
    return this.#verb(request, [], async (git, dir) => {
      const commit = await commitOf(git, dir, `refs/heads/${branch}`)
      if (commit === undefined)
        throw new GitError('no_such_branch', `the clone ${request.name} has no branch ${branch}`, {
          hint: 'export a tree to it first',
        })
      await checkTarget(target ?? parseSource(await sourceOf(git, dir)), this.#ownUid)
      return pushBranch(git, dir, branch, commit, target === undefined ? 'origin' : textOf(target))
    })
  }

  async log(request: LogRequest): Promise<readonly Commit[]> {
    const count = request.n ?? 20
    if (!Number.isInteger(count) || count < 1 || count > 1_000)
      throw new GitError('bad_argument', 'n is a whole number from 1 to 1,000')
    return this.#verb(request, [], async (git, dir) => {
      const from = request.ref === undefined ? undefined : (await findCommit(git, dir, request.ref, 'clone')).commit
      return readLog(git, dir, count, from)
    })
  }

  /** One verb on one clone: checks the name, waits its turn, opens git, and clears up after a call that was cut off. */
  async #verb<T>(
    request: { readonly name: string; readonly signal?: AbortSignal } | ImportRequest,
    safeDirectories: readonly string[],
    body: (git: GitSession, dir: string) => Promise<T>,
  ): Promise<T> {
    const name = checkRepoName(request.name)
    const dir = join(this.#reposDir, `${name}.git`)
    this.#prepared ??= this.#prepare().catch((error: unknown) => {
      this.#prepared = undefined
      throw error
    })
    await this.#prepared
    return this.#queues.run(name, async () => {
      if (!('src' in request) && !existsSync(dir))
        throw new GitError('not_found', `there is no repository ${name} here`, { hint: 'import it first' })
      if (existsSync(dir) && !this.#clean.has(name)) {
        await clearLeftovers(dir)
        this.#clean.add(name)
      }
      await using git = await GitSession.open({
        program: this.#program,
        scratchRoot: this.#reposDir,
        safeDirectories,
        signal: request.signal,
      })
      try {
        return await body(git, dir)
      } catch (error) {
        this.#clean.delete(name)
        // A stream that was cut off fails in its own way first.
        if (request.signal?.aborted === true)
          throw new GitError('cancelled', 'the git call was cancelled', { cause: error })
        throw error
      }
    })
  }

  /** Makes the folder, and removes the scratch folders of a process that died. */
  async #prepare(): Promise<void> {
    await mkdir(this.#reposDir, { recursive: true, mode: 0o700 })
    const stale = (await readdir(this.#reposDir)).filter((name) => name.startsWith(scratchPrefix))
    await Promise.all(stale.map((name) => rm(join(this.#reposDir, name), { recursive: true, force: true })))
  }
}

/** The paths under which git may look at a local source: as given, as it is, and its `.git`. */
async function safeDirectoriesOf(source: Source): Promise<readonly string[]> {
  if (source.kind !== 'path') return []
  if (!existsSync(source.path)) throw new GitError('not_found', 'there is nothing at the path of the repository')
  const real = await realpath(source.path)
  return [...new Set([source.path, real].flatMap((path) => [path, join(path, '.git')]))]
}
