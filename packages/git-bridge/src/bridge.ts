import type { Store } from '@reve/content-store'
import { existsSync } from 'node:fs'
import { mkdtemp, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { exportTree } from './export.ts'
import { credentialFor } from './credentials.ts'
import { GitError } from './errors.ts'
import { fetchAll, initClone, setCurrent, sourceOf, type RemoteHead } from './fetch.ts'
import { GitSession, scratchPrefix } from './git.ts'
import { consolidate } from './housekeeping.ts'
import { readLog, type Commit } from './log.ts'
import { checkBranch, checkRepoName, checkRevision, parseSource, textOf, type Source } from './names.ts'
import { Notes } from './notes.ts'
import { ObjectMap } from './object-map.ts'
import { checkPerson, parsePerson, type Person } from './person.ts'
import { checkTarget, pushBranch, pushCancelled, type PushResult } from './push.ts'
import { commitOf, findCommit } from './refs.ts'
import type {
  ExportRequest,
  ExportResult,
  GitBridge,
  GitBridgeOptions,
  ImportRequest,
  ImportResult,
  LogRequest,
  PushRequest,
} from './requests.ts'
import { ReposDir } from './repos-dir.ts'
import type { Remote } from './surroundings.ts'
import { syncClone, syncFolder } from './sync.ts'
import { importTree } from './tree-in.ts'
import { checkVersion } from './version.ts'

/** Opens the bridge; nothing is started before the first verb. */
export function createGitBridge(options: GitBridgeOptions): GitBridge {
  return new Bridge(options)
}

/** How a verb's git is run. */
type Surroundings = Pick<ImportRequest, 'signal' | 'onProgress'> & {
  readonly safeDirectories?: readonly string[]
  readonly remote?: Remote
}

class Bridge implements GitBridge {
  readonly #options: GitBridgeOptions
  readonly #store: Store
  readonly #committer: Person
  readonly #repos: ReposDir
  #map: ObjectMap | undefined
  #versionIsRight = false

  constructor(options: GitBridgeOptions) {
    this.#options = options
    this.#store = options.store
    this.#committer = checkPerson(options.identity)
    this.#repos = new ReposDir(options.reposDir)
  }

  async import(request: ImportRequest): Promise<ImportResult> {
    const source = parseSource(request.src)
    const name = checkRepoName(request.name)
    if (request.ref !== undefined) checkRevision(request.ref)
    const safeDirectories = await safeDirectoriesOf(source)
    const remote = await this.#remote(source)
    return this.#repos.change(name, request.signal, () =>
      this.#session({ ...request, safeDirectories, remote }, async (git) => {
        const dir = this.#repos.of(name)
        if (!existsSync(dir)) return this.#importNew(git, request, source)
        if ((await sourceOf(git, dir)) !== textOf(source)) {
          throw new GitError('bad_argument', `the repository ${name} was imported from another address`, {
            hint: 'import this one under another name',
          })
        }
        await consolidate(git, dir)
        const result = await this.#read(git, dir, request, source)
        this.#record(request, result)
        return result
      }),
    )
  }

  /** A clone appears whole, with the ref of its name, or not at all. */
  async #importNew(git: GitSession, request: ImportRequest, source: Source): Promise<ImportResult> {
    const dir = this.#repos.of(request.name)
    const parent = await mkdtemp(join(this.#repos.path, scratchPrefix))
    try {
      const fresh = join(parent, 'clone.git')
      await initClone(git, fresh, source)
      const result = await this.#read(git, fresh, request, source)
      await syncClone(fresh)
      await rename(fresh, dir)
      await syncFolder(this.#repos.path)
      try {
        this.#record(request, result)
      } catch (error) {
        await rm(dir, { recursive: true, force: true })
        throw error
      }
      return result
    } finally {
      await rm(parent, { recursive: true, force: true })
    }
  }

  async #read(git: GitSession, dir: string, request: ImportRequest, source: Source): Promise<ImportResult> {
    const notes = new Notes()
    const { head, notes: branchNotes } = await fetchAll(git, dir, source, request.ref)
    for (const note of branchNotes) notes.add(note.kind, `${note.branch}: ${note.detail}`)
    const found = await this.#requested(git, dir, request.ref, head)
    if (found === undefined) notes.add('empty_repository')
    const tree =
      found === undefined
        ? this.#store.emptyTree
        : await importTree(git, dir, found.commit, this.#store, this.#objects(), notes)
    if (found !== undefined) await setCurrent(git, dir, found)
    git.checkSignal()
    return {
      tree,
      commit: found?.commit ?? null,
      ref: request.name,
      gitRef: found?.ref ?? null,
      notes: notes.list(),
    }
  }

  async #requested(
    git: GitSession,
    dir: string,
    ref: string | undefined,
    head: RemoteHead,
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

  #record(request: ImportRequest, result: ImportResult): void {
    const { refs } = this.#store
    const note = `git import${result.commit === null ? '' : ` of ${result.commit}`}`
    this.#store.transaction(() => {
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
      request.alongside?.(result)
    })
  }

  async export(request: ExportRequest): Promise<ExportResult> {
    const name = checkRepoName(request.name)
    const branch = checkBranch(request.branch)
    const author = request.author === undefined ? this.#committer : personOf(request.author)
    const message = checkMessage(request.message)
    if (request.startPoint !== undefined) checkRevision(request.startPoint)
    const tree = this.#store.refs.resolve(request.tree)
    return this.#change(name, request, async (git, dir) => {
      await consolidate(git, dir)
      const seconds = Math.floor((this.#options.now ?? Date.now)() / 1000)
      const target = { branch, startPoint: request.startPoint }
      const text = { author, committer: this.#committer, seconds, message }
      return exportTree(git, dir, { store: this.#store, map: this.#objects(), tree }, target, text)
    })
  }

  async push(request: PushRequest): Promise<PushResult> {
    const name = checkRepoName(request.name)
    const branch = checkBranch(request.branch)
    const named = request.remote === undefined || request.remote === 'origin' ? undefined : parseSource(request.remote)
    const target = named ?? (await this.#origin(name, request))
    const remote = await this.#remote(target)
    const pushing = this.#change(name, { ...request, remote }, async (git, dir) => {
      const commit = await commitOf(git, dir, `refs/heads/${branch}`)
      if (commit === undefined)
        throw new GitError('no_such_branch', `the clone ${name} has no branch ${branch}`, {
          hint: 'export a tree to it first',
        })
      await checkTarget(target, this.#options.ownUid ?? process.getuid?.())
      return pushBranch(git, dir, branch, commit, named === undefined ? 'origin' : textOf(named))
    })
    return pushing.catch((error: unknown) => {
      throw error instanceof GitError && error.code === 'cancelled' ? pushCancelled(branch, error) : error
    })
  }

  /** Where a clone came from: that is known before git is started for the other side. */
  async #origin(name: string, request: Pick<PushRequest, 'signal'>): Promise<Source> {
    return this.#repos.read(() =>
      this.#session({ ...(request.signal === undefined ? {} : { signal: request.signal }) }, async (git) =>
        parseSource(await sourceOf(git, this.#there(name))),
      ),
    )
  }

  async log(request: LogRequest): Promise<readonly Commit[]> {
    const name = checkRepoName(request.name)
    const count = request.n ?? 20
    if (!Number.isInteger(count) || count < 1 || count > 1_000)
      throw new GitError('bad_argument', 'n is a whole number from 1 to 1,000')
    return this.#repos.read(() =>
      this.#session(request, async (git) => {
        const dir = this.#there(name)
        const from = request.ref === undefined ? undefined : (await findCommit(git, dir, request.ref, 'clone')).commit
        return readLog(git, dir, count, from)
      }),
    )
  }

  #change<T>(name: string, surroundings: Surroundings, verb: (git: GitSession, dir: string) => Promise<T>): Promise<T> {
    return this.#repos.change(name, surroundings.signal, () =>
      this.#session(surroundings, async (git) => verb(git, this.#there(name))),
    )
  }

  /** The folder of a clone that has to be there. */
  #there(name: string): string {
    const dir = this.#repos.of(name)
    if (existsSync(dir)) return dir
    throw new GitError('not_found', `there is no repository ${name} here`, { hint: 'import it first' })
  }

  async #session<T>(surroundings: Surroundings, verb: (git: GitSession) => Promise<T>): Promise<T> {
    const { signal, safeDirectories, remote, onProgress } = surroundings
    await using git = await GitSession.open({
      program: this.#options.git ?? 'git',
      scratchRoot: this.#repos.path,
      signal,
      onProgress,
      ...(safeDirectories === undefined ? {} : { safeDirectories }),
      ...(remote === undefined ? {} : { remote }),
    })
    try {
      if (!this.#versionIsRight) await checkVersion(git)
      this.#versionIsRight = true
      return await verb(git)
    } catch (error) {
      // A stream that was cut off fails in its own way first.
      if (signal?.aborted === true) throw new GitError('cancelled', 'the git call was cancelled', { cause: error })
      throw error
    }
  }

  async #remote(source: Source): Promise<Remote> {
    const { credentials = [], ssh = {}, http = {} } = this.#options
    const known = typeof credentials === 'function' ? await credentials() : credentials
    return { source, credential: credentialFor(source, known), ssh, http }
  }

  #objects(): ObjectMap {
    this.#map ??= new ObjectMap(this.#store)
    return this.#map
  }
}

const personOf = (author: string | Person): Person =>
  typeof author === 'string' ? parsePerson(author) : checkPerson(author)

function checkMessage(message: string): string {
  if (message.trim() === '' || message.includes('\0') || !message.isWellFormed())
    throw new GitError('bad_argument', 'a commit needs a message, of well-formed text without NUL characters')
  return message
}

/** The paths under which git may look at a local source: as given, as it is, and its `.git`. */
async function safeDirectoriesOf(source: Source): Promise<readonly string[]> {
  if (source.kind !== 'path') return []
  if (!existsSync(source.path)) throw new GitError('not_found', 'there is nothing at the path of the repository')
  const real = await realpath(source.path)
  return [...new Set([source.path, real].flatMap((path) => [path, join(path, '.git')]))]
}
