import { sanitiseTerminal } from '@reve/base'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { GitError } from './errors.ts'
import { startHostProcess } from './host-process.ts'

/** Where git and its helpers (ssh) are looked for. */
const searchPath = '/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin'

/** Settings of every call: nothing that a repository or a user's configuration says may start a program. */
const settings = [
  'core.fsmonitor=false',
  'core.hooksPath=/dev/null',
  'core.askPass=',
  'core.attributesFile=/dev/null',
  'core.fsync=committed',
  'core.quotePath=false',
  'credential.helper=',
  'fetch.recurseSubmodules=false',
  'gc.auto=0',
  'http.lowSpeedLimit=1000',
  'http.lowSpeedTime=60',
  'log.showSignature=false',
  'maintenance.auto=false',
  'protocol.ext.allow=never',
  'push.gpgSign=false',
  'push.recurseSubmodules=no',
  'submodule.recurse=false',
  'transfer.credentialsInUrl=die',
]

/** Bytes of git's messages that are kept: the end says why. */
const stderrLimit = 8 * 1024
/** Bytes of a short answer; longer ones are read as a stream. */
const answerLimit = 64 * 1024 * 1024

/** What a call of git ended with. Its messages are made safe to show. */
export type GitAnswer = { readonly code: number | null; readonly stdout: Buffer; readonly stderr: string }

/** A call of git that is read or fed while it runs. */
export type GitStream = {
  readonly stdin: Writable
  readonly stdout: Readable
  /** Settles when git has ended. */
  readonly ended: Promise<{ readonly code: number | null; readonly stderr: string }>
  /** Ends git if it still runs. */
  stop(): void
}

/** One verb's use of git: a scratch folder of its own (home, configuration), a signal, and a closed environment. */
export class GitSession implements AsyncDisposable {
  readonly #program: string
  readonly #scratch: string
  readonly #signal: AbortSignal | undefined
  readonly #running = new Set<ChildProcess>()

  private constructor(program: string, scratch: string, signal: AbortSignal | undefined) {
    this.#program = program
    this.#scratch = scratch
    this.#signal = signal
  }

  /**
   * @param safeDirectories repositories that git may read although another user owns them.
   */
  static async open(options: {
    readonly program: string
    readonly scratchRoot: string
    readonly safeDirectories: readonly string[]
    readonly signal: AbortSignal | undefined
  }): Promise<GitSession> {
    const scratch = await mkdtemp(join(options.scratchRoot, scratchPrefix))
    const lines = options.safeDirectories.map((path) => `\tdirectory = ${configValue(path)}\n`)
    await writeFile(join(scratch, 'config'), `[safe]\n${lines.join('')}`, { mode: 0o600 })
    return new GitSession(options.program, scratch, options.signal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const running = [...this.#running]
    const closed = running.map((child) => new Promise<void>((resolve) => void child.once('close', () => resolve())))
    for (const child of running) stopGroup(child)
    await Promise.all(closed)
    await rm(this.#scratch, { recursive: true, force: true })
  }

  #start(gitDir: string | undefined, args: readonly string[], env: Readonly<Record<string, string>>): ChildProcess {
    if (this.#signal?.aborted === true) throw new GitError('cancelled', 'the git call was cancelled')
    const child = startHostProcess('git', {
      file: this.#program,
      args: [...settings.flatMap((setting) => ['-c', setting]), ...args],
      cwd: this.#scratch,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: {
        PATH: searchPath,
        HOME: this.#scratch,
        LC_ALL: 'C',
        GIT_ATTR_NOSYSTEM: '1',
        GIT_ALLOW_PROTOCOL: 'file:git:http:https:ssh',
        GIT_CONFIG_GLOBAL: join(this.#scratch, 'config'),
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_NO_LAZY_FETCH: '1',
        GIT_NO_REPLACE_OBJECTS: '1',
        GIT_OPTIONAL_LOCKS: '0',
        GIT_SSH_COMMAND: 'ssh -oBatchMode=yes',
        GIT_TERMINAL_PROMPT: '0',
        ...(gitDir === undefined ? {} : { GIT_DIR: gitDir }),
        ...env,
      },
    })
    this.#running.add(child)
    const onAbort = (): void => stopGroup(child)
    this.#signal?.addEventListener('abort', onAbort, { once: true })
    child.once('close', () => {
      this.#running.delete(child)
      this.#signal?.removeEventListener('abort', onAbort)
    })
    return child
  }

  /**
   * Starts git to be read or fed as a stream.
   *
   * @throws GitError `git_missing` (from `ended`), `cancelled`.
   */
  stream(gitDir: string | undefined, args: readonly string[], env: Readonly<Record<string, string>> = {}): GitStream {
    const child = this.#start(gitDir, args, env)
    const { stdin, stdout, stderr } = child
    if (stdin === null || stdout === null || stderr === null) throw new GitError('io', 'git was started without pipes')
    let messages = Buffer.alloc(0)
    stderr.on('data', (chunk: Buffer) => {
      messages = Buffer.concat([messages, chunk]).subarray(-stderrLimit)
    })
    // git may end before it has read everything; why is told by its code and messages.
    stdin.on('error', () => undefined)
    const ended = once(child, 'close').then(
      ([code]: unknown[]) => {
        if (this.#signal?.aborted === true) throw new GitError('cancelled', 'the git call was cancelled')
        return {
          code: typeof code === 'number' ? code : null,
          stderr: sanitiseTerminal(messages.toString('utf8')).trim(),
        }
      },
      (error: unknown) => {
        throw new GitError('git_missing', `git could not be started (${this.#program})`, {
          cause: error,
          hint: 'install git, or name the program',
        })
      },
    )
    // Whoever waits sees it; a caller that stops before it waits must not cause an unhandled rejection.
    ended.catch(() => undefined)
    return { stdin, stdout, ended, stop: () => stopGroup(child) }
  }

  /** Runs git and reads its whole (short) answer; any exit code is an answer. */
  async ask(gitDir: string | undefined, args: readonly string[], input = ''): Promise<GitAnswer> {
    const call = this.stream(gitDir, args)
    call.stdin.end(input)
    const chunks: Buffer[] = []
    let length = 0
    for await (const data of call.stdout) {
      const chunk: Buffer = data
      length += chunk.length
      if (length > answerLimit) {
        call.stop()
        throw new GitError('io', `git ${args[0] ?? ''} answered more than ${answerLimit} bytes`)
      }
      chunks.push(chunk)
    }
    const { code, stderr } = await call.ended
    return { code, stdout: Buffer.concat(chunks), stderr }
  }

  /**
   * Runs git and returns what it printed, without the last line end.
   *
   * @throws GitError `io` when git fails.
   */
  async text(gitDir: string | undefined, args: readonly string[], input = ''): Promise<string> {
    const answer = await this.ask(gitDir, args, input)
    if (answer.code !== 0) throw failed(args, answer)
    return answer.stdout.toString('utf8').replace(/\n$/, '')
  }
}

/** Scratch folders carry this in front: what a dead process left is found by it. */
export const scratchPrefix = '.tmp-'

/** The error for a call of git that should not fail. */
export function failed(
  args: readonly string[],
  answer: { readonly code: number | null; readonly stderr: string },
): GitError {
  return new GitError(
    'io',
    `git ${args[0] ?? ''} failed${answer.code === null ? '' : ` with code ${answer.code}`}: ${lastLines(answer.stderr)}`,
  )
}

/** The part of git's messages that says what went wrong. */
export function lastLines(stderr: string): string {
  const lines = stderr.split('\n').filter((line) => line.trim() !== '')
  const telling = lines.filter((line) => /^(?:fatal|error|remote| !)/.test(line))
  return (telling.length > 0 ? telling : lines).slice(-6).join('; ').slice(0, 1_000) || 'it said nothing'
}

function configValue(path: string): string {
  return `"${path.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
}

/** Milliseconds for git to take its lock files away before it is killed. */
const graceMs = 2_000

function stopGroup(child: ChildProcess): void {
  if (!signalGroup(child, 'SIGTERM')) return
  const timer = setTimeout(() => void signalGroup(child, 'SIGKILL'), graceMs)
  child.once('close', () => clearTimeout(timer))
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): boolean {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return false
  try {
    return process.kill(-child.pid, signal)
  } catch {
    // Ended in this moment.
    return false
  }
}
