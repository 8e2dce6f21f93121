import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Duplex, type Readable, type Writable } from 'node:stream'
import { redactSecrets } from '@reve/base'
import { answerOn } from './credential-channel.ts'
import { secretsOf } from './credentials.ts'
import { GitError } from './errors.ts'
import { startGuarded, startHostProcess } from './host-process.ts'
import { Messages } from './messages.ts'
import { stopGroup } from './process-group.ts'
import type { GitProgress } from './progress.ts'
import { configText, environmentOf, helperSetting, settings, sshConfigText, type Remote } from './surroundings.ts'

/** Bytes of a short answer; longer ones are read as a stream. */
const answerLimit = 64 * 1024 * 1024

/** What a call of git ended with. Its messages are made safe to show. */
export type GitAnswer = { readonly code: number | null; readonly stdout: Buffer; readonly stderr: string }

/** A call of git that is read or fed while it runs. */
export type GitStream = {
  readonly stdin: Writable
  readonly stdout: Readable
  /** Writes to git, waiting while it is busy; gives up quietly when git has ended, whose code and messages tell why. */
  write(bytes: Uint8Array): Promise<void>
  /** Settles when git has ended. */
  readonly ended: Promise<{ readonly code: number | null; readonly stderr: string }>
  /** Ends git if it still runs. */
  stop(): void
}

/** Scratch folders carry this in front: what a dead process left is found by it. */
export const scratchPrefix = '.tmp-'

type SessionOptions = {
  readonly program: string
  readonly scratchRoot: string
  /** Repositories that git may read although another user owns them. */
  readonly safeDirectories?: readonly string[]
  /** The other side, if the verb has one. */
  readonly remote?: Remote
  readonly signal: AbortSignal | undefined
  readonly onProgress?: ((progress: GitProgress) => void) | undefined
}

/** One verb's use of git: a scratch folder of its own (home, configuration), a signal, and a closed environment. */
export class GitSession implements AsyncDisposable {
  readonly #options: SessionOptions
  readonly #scratch: string
  readonly #secrets: readonly string[]
  readonly #running = new Set<ChildProcess>()
  #answered = false

  private constructor(options: SessionOptions, scratch: string) {
    this.#options = options
    this.#scratch = scratch
    this.#secrets = secretsOf(options.remote?.credential)
  }

  static async open(options: SessionOptions): Promise<GitSession> {
    const scratch = await mkdtemp(join(options.scratchRoot, scratchPrefix))
    await writeFile(join(scratch, 'config'), configText(options.safeDirectories ?? [], options.remote), { mode: 0o600 })
    await writeFile(join(scratch, 'ssh'), sshConfigText(options.remote), { mode: 0o600 })
    return new GitSession(options, scratch)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const running = [...this.#running]
    const closed = running.map((child) => new Promise<void>((resolve) => void child.once('close', () => resolve())))
    for (const child of running) {
      stopGroup(child)
      // Nobody reads it any more, and one with unread output does not count as closed.
      child.stdout?.destroy()
    }
    await Promise.all(closed)
    await rm(this.#scratch, { recursive: true, force: true })
  }

  /** Whether the other side was shown a credential. */
  get answered(): boolean {
    return this.#answered || this.#options.remote?.credential?.scheme === 'ssh'
  }

  /** @throws GitError `cancelled`. */
  checkSignal(): void {
    if (this.#options.signal?.aborted === true) throw new GitError('cancelled', 'the git call was cancelled')
  }

  /** Text of the other side without the credential that it was shown. */
  redact(text: string): string {
    return redactSecrets(text, this.#secrets)
  }

  report(progress: GitProgress): void {
    this.#options.onProgress?.(progress)
  }

  #start(
    gitDir: string | undefined,
    args: readonly string[],
    networked: boolean,
    env: Readonly<Record<string, string>> = {},
  ): ChildProcess {
    this.checkSignal()
    const { program, remote, signal } = this.#options
    const web = networked && remote?.source.kind === 'address' && /^https?$/.test(remote.source.scheme)
    const all = web ? [...settings, helperSetting] : settings
    const command = {
      file: program,
      args: [...all.flatMap((setting) => ['-c', setting]), ...args],
      cwd: this.#scratch,
      // Descriptor 3 is where git asks for a login; no other program gets it.
      stdio: web ? (['pipe', 'pipe', 'pipe', 'pipe'] as const) : (['pipe', 'pipe', 'pipe'] as const),
      env: { ...environmentOf(this.#scratch, remote), ...(gitDir === undefined ? {} : { GIT_DIR: gitDir }), ...env },
    }
    const child = networked
      ? startGuarded('sh', { ...command, stdio: [...command.stdio] })
      : startHostProcess('git', { ...command, stdio: [...command.stdio] })
    const channel = child.stdio[3]
    if (channel instanceof Duplex) {
      const login = remote?.credential?.scheme === 'ssh' ? undefined : remote?.credential
      answerOn(channel, login, () => (this.#answered = true))
    }
    this.#running.add(child)
    const onAbort = (): void => stopGroup(child)
    signal?.addEventListener('abort', onAbort, { once: true })
    child.once('close', () => {
      this.#running.delete(child)
      signal?.removeEventListener('abort', onAbort)
    })
    return child
  }

  /**
   * Starts git to be read or fed as a stream.
   *
   * @throws GitError `git_missing` (from `ended`), `cancelled`.
   */
  stream(gitDir: string | undefined, args: readonly string[]): GitStream {
    return this.#streamOf(this.#start(gitDir, args, false))
  }

  #streamOf(child: ChildProcess): GitStream {
    const { stdin, stdout, stderr } = child
    if (stdin === null || stdout === null || stderr === null) throw new GitError('io', 'git was started without pipes')
    const messages = new Messages(this.#secrets, (progress) => this.report(progress))
    stderr.on('data', (chunk: Buffer) => messages.push(chunk))
    // git may end before it has read everything; why is told by its code and messages.
    stdin.on('error', () => undefined)
    const ended = once(child, 'close').then(
      ([code]: unknown[]) => {
        this.checkSignal()
        return { code: typeof code === 'number' ? code : null, stderr: messages.text() }
      },
      (error: unknown) => {
        throw new GitError('git_missing', `git could not be started (${this.#options.program})`, {
          cause: error,
          hint: 'install git, or name the program',
        })
      },
    )
    // Whoever waits sees it; a caller that stops before it waits must not cause an unhandled rejection.
    ended.catch(() => undefined)
    const write = async (bytes: Uint8Array): Promise<void> => {
      if (stdin.destroyed || stdin.write(bytes)) return
      await Promise.race([new Promise((resolve) => void stdin.once('drain', resolve)), ended])
    }
    return { stdin, stdout, write, ended, stop: () => stopGroup(child) }
  }

  /** Runs git and reads its whole (short) answer; any exit code is an answer. */
  async ask(gitDir: string | undefined, args: readonly string[], input = ''): Promise<GitAnswer> {
    const call = this.stream(gitDir, args)
    call.stdin.end(input)
    return answerOf(call, args)
  }

  /** As `ask`, for a call that takes its time or talks to the other side, to which it may show the credential: it ends with this process. */
  async askGuarded(
    gitDir: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<GitAnswer> {
    const call = this.#streamOf(this.#start(gitDir, args, true, env))
    try {
      return await answerOf(call, args)
    } finally {
      call.stdin.end()
    }
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

async function answerOf(call: GitStream, args: readonly string[]): Promise<GitAnswer> {
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
  const telling = lines.filter((line) => /^(?:fatal|error|remote|ssh:| !)|Permission denied|Host key/.test(line))
  return (telling.length > 0 ? telling : lines).slice(-6).join('; ').slice(0, 1_000) || 'it said nothing'
}
