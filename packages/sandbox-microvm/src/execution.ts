import { MicroVmError } from './errors.ts'
import { ByteQueue } from './byte-queue.ts'
import { createInput } from './input.ts'
import {
  type ChannelFrame,
  creditPayload,
  execPayload,
  type GuestFrame,
  MAX_TO_GUEST,
  signalPayload,
  sizePayload,
  toGuest,
  WINDOW_BYTES,
} from './frames.ts'
import { type ByteSource, type ExecRequest, type ExecResult, type Signal, SIGNALS, type TerminalSize } from './spec.ts'

/** What can be said to a command that runs. */
export type CommandControl = { signal(signal: Signal): void; resize(size: TerminalSize): void }

/** What is common to a command and to the copying of a file. */
export type GuestWork = {
  readonly stdin: Uint8Array | ByteSource
  readonly maxOutputBytes: number
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  readonly onOutput?: NonNullable<ExecRequest['onOutput']>
  /** Called once, when it is on its way to the guest. */
  readonly onBegin?: (control: CommandControl) => void
}

/** An exec request with everything filled in. */
export type GuestCommand = GuestWork &
  Required<Pick<ExecRequest, 'argv' | 'cwd' | 'env'>> & { readonly pty?: TerminalSize }

/** One command in the guest, seen from the host. */
export type Execution = {
  readonly result: Promise<ExecResult>
  /** Starts it: `type` and `payload` are the frame that does. */
  begin(type: number, payload: Uint8Array): void
  /** Takes one frame of its channel; throws `guest_lost` when the guest may not send it now. */
  handle(frame: ChannelFrame): 'running' | 'ended'
  fail(error: MicroVmError): void
}

/** The way to the guest, for one channel. */
export type ChannelIo = {
  readonly send: (type: number, payload?: Uint8Array) => void
  /** Calls back as soon as the channel is not full; at once when it is not. */
  readonly whenRoom: (callback: () => void) => void
}

/** How long the guest may take to report the end of what was killed. */
const KILL_MS = 30_000
/** Grants are collected: one frame for each quarter of a window. */
export const GRANT_BYTES = WINDOW_BYTES / 4

type Stream = 'stdout' | 'stderr'

/** A stream of which the first `limit` bytes are kept and all are counted. */
class Collected {
  readonly #limit: number
  readonly #kept = new ByteQueue()
  total = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  add(bytes: Uint8Array): void {
    this.total += bytes.length
    const room = this.#limit - this.#kept.length
    if (room > 0) this.#kept.append(bytes.subarray(0, room))
  }

  bytes(): Uint8Array {
    return this.#kept.take()
  }
}

/** Follows `work` on one channel: sends its input as far as the guest grants, collects its output, kills it in time. */
export function createExecution(
  work: GuestWork,
  io: ChannelIo & { readonly fail: (error: MicroVmError) => void; readonly now: () => number },
): Execution {
  const { promise, resolve, reject } = Promise.withResolvers<ExecResult>()
  const streams = { stdout: new Collected(work.maxOutputBytes), stderr: new Collected(work.maxOutputBytes) }
  const startedAt = io.now()
  let killed: 'cancelled' | 'timedOut' | undefined
  let timer: NodeJS.Timeout | undefined
  let killTimer: NodeJS.Timeout | undefined
  let failure: { readonly error: unknown } | undefined
  let exit: Extract<GuestFrame, { type: 'exit' }> | undefined
  let over = false
  let outputCredit = WINDOW_BYTES
  let toGrant = 0
  /** Output that came while its reader was busy; at most a window. */
  let waiting: { readonly stream: Stream; readonly bytes: ByteQueue }[] = []
  let readerIsBusy = false

  const kill = (why: 'cancelled' | 'timedOut'): void => {
    if (killed !== undefined || over) return
    killed = why
    io.send(toGuest.kill)
    killTimer = setTimeout(
      () =>
        io.fail(
          new MicroVmError(
            'guest_lost',
            `the guest did not end a killed command within ${KILL_MS / 1000} s; the VM is stopped`,
          ),
        ),
      KILL_MS,
    )
    // The guest can only report the end when it may send what it still has: nobody waits for the reader any more.
    flush()
  }
  const onAbort = (): void => kill('cancelled')

  /** The caller's own failure: it ends this command, not the VM. */
  const failWith = (error: unknown): void => {
    failure ??= { error }
    kill('cancelled')
  }

  const input = createInput(work.stdin, io, (cause) =>
    failWith(new MicroVmError('input_failed', 'the source of the input failed; the command was killed', { cause })),
  )

  const end = (): void => {
    over = true
    clearTimeout(timer)
    clearTimeout(killTimer)
    work.signal?.removeEventListener('abort', onAbort)
    input.stop()
  }

  const grant = (length: number): void => {
    toGrant += length
    if (toGrant < GRANT_BYTES) return
    outputCredit += toGrant
    io.send(toGuest.credit, creditPayload(toGrant))
    toGrant = 0
  }

  /** Hands output to its reader; what it returns is looked at only if it is a promise. */
  const deliver = (stream: Stream, bytes: Uint8Array): Promise<unknown> | undefined => {
    if (failure !== undefined) return undefined
    try {
      const taken: unknown = work.onOutput?.(stream, bytes)
      return taken instanceof Promise ? taken : undefined
    } catch (error) {
      failWith(error)
      return undefined
    }
  }

  const pass = (stream: Stream, bytes: Uint8Array): void => {
    const taken = deliver(stream, bytes)
    if (taken === undefined || killed !== undefined) {
      taken?.catch(failWith)
      grant(bytes.length)
      return
    }
    readerIsBusy = true
    taken.then(
      () => {
        readerIsBusy = false
        if (over) return
        grant(bytes.length)
        passWaiting()
      },
      (error: unknown) => {
        readerIsBusy = false
        failWith(error)
        settle()
      },
    )
  }

  const passWaiting = (): void => {
    for (let next = waiting.shift(); next !== undefined; next = readerIsBusy ? undefined : waiting.shift())
      pass(next.stream, next.bytes.take())
    settle()
  }

  const flush = (): void => {
    readerIsBusy = false
    passWaiting()
  }

  const take = (stream: Stream, bytes: Uint8Array): void => {
    outputCredit -= bytes.length
    if (outputCredit < 0)
      throw new MicroVmError('guest_lost', 'the guest sent more output than was granted; the VM is stopped')
    streams[stream].add(bytes)
    if (!readerIsBusy) return pass(stream, bytes)
    const last = waiting.at(-1)
    const queue = last?.stream === stream ? last.bytes : new ByteQueue()
    if (queue !== last?.bytes) waiting.push({ stream, bytes: queue })
    queue.append(bytes)
  }

  /** Ends it when its program has ended and its reader has everything. */
  const settle = (): void => {
    if (exit === undefined || over || readerIsBusy || waiting.length > 0) return
    end()
    if (failure !== undefined) return reject(failure.error)
    const { code, signal, killed: wasKilled, left } = exit
    // What had ended by itself before the kill reached it has its own code.
    const why = wasKilled ? killed : undefined
    return resolve({
      exitCode: why === 'cancelled' ? 130 : why === 'timedOut' ? 124 : code,
      ...(signal === 0 ? {} : { signal }),
      cancelled: why === 'cancelled',
      timedOut: why === 'timedOut',
      stdout: streams.stdout.bytes(),
      stderr: streams.stderr.bytes(),
      stdoutBytes: streams.stdout.total,
      stderrBytes: streams.stderr.total,
      leftRunning: killed === undefined ? [] : left,
      durationMs: io.now() - startedAt,
    })
  }

  return {
    result: promise,
    begin: (type, payload) => {
      io.send(type, payload)
      input.begin()
      if (work.timeoutMs !== undefined) timer = setTimeout(() => kill('timedOut'), work.timeoutMs)
      if (work.signal?.aborted === true) kill('cancelled')
      else work.signal?.addEventListener('abort', onAbort, { once: true })
      work.onBegin?.({
        signal: (signal) => {
          if (!over) io.send(toGuest.signal, signalPayload(SIGNALS[signal]))
        },
        resize: ({ cols, rows }) => {
          if (!over) io.send(toGuest.resize, sizePayload(cols, rows))
        },
      })
    },
    handle: (frame) => {
      switch (frame.type) {
        case 'started':
          return 'running'
        case 'stdout':
        case 'stderr':
          take(frame.type, frame.bytes)
          return 'running'
        case 'credit':
          input.grant(frame.bytes)
          return 'running'
        case 'exit':
          exit = frame
          clearTimeout(killTimer)
          // A killed command does not wait for its reader.
          if (killed === undefined) settle()
          else flush()
          return 'ended'
        case 'error':
          end()
          reject(new MicroVmError('guest_lost', `the guest could not start the command: ${frame.text}`))
          return 'ended'
        case 'pong':
        case 'done':
        case 'open':
        case 'end':
        case 'reset':
        case 'dns':
        case 'denied':
          throw new MicroVmError('guest_lost', `the guest sent a ${frame.type} frame for a command; the VM is stopped`)
        default:
          return frame satisfies never
      }
    },
    fail: (error) => {
      end()
      waiting = []
      reject(failure?.error ?? error)
    },
  }
}

const isSize = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= 65_535

/** The size, or a `bad_spec`. */
export function checkSize(size: TerminalSize): TerminalSize {
  if (isSize(size.cols) && isSize(size.rows)) return { cols: size.cols, rows: size.rows }
  throw new MicroVmError('bad_spec', `a terminal of ${size.cols} by ${size.rows}; give whole numbers from 1 to 65535`)
}

/** The command as the guest gets it, or a `bad_spec` that says what is wrong with it. */
export function checkCommand(
  request: ExecRequest,
  defaults: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): GuestCommand {
  const wrong = (text: string): MicroVmError => new MicroVmError('bad_spec', `exec: ${text}`)
  const pty = request.pty === undefined ? undefined : checkSize(request.pty)
  const term = request.pty === undefined ? {} : { TERM: request.pty.term ?? 'xterm-256color' }
  const env = { ...defaults.env, ...term, ...request.env }
  const cwd = request.cwd ?? defaults.cwd
  if (request.argv.length === 0 || request.argv[0] === '') throw wrong('argv needs a program')
  for (const name of Object.keys(env))
    if (name === '' || name.includes('=')) throw wrong(`"${name}" cannot name an environment variable`)
  if ([...request.argv, cwd, ...Object.entries(env).flat()].some((text) => text.includes('\0')))
    throw wrong('a NUL stands in an argument, the environment or cwd')
  const { timeoutMs, maxOutputBytes = 8 * 1024 * 1024 } = request
  if (timeoutMs !== undefined && !(timeoutMs >= 1 && timeoutMs <= 2_147_483_647))
    throw wrong(`timeoutMs is ${timeoutMs}; give 1 to 2147483647, or leave it out`)
  if (!(Number.isSafeInteger(maxOutputBytes) && maxOutputBytes >= 0))
    throw wrong(`maxOutputBytes is ${maxOutputBytes}; give a whole number of bytes`)
  const size = execPayload(request.argv, env, cwd).length
  if (size > MAX_TO_GUEST)
    throw wrong(
      `arguments and environment take ${size} bytes, more than ${MAX_TO_GUEST}; put the text into a file or stdin`,
    )
  return {
    argv: request.argv,
    cwd,
    env,
    stdin: typeof request.stdin === 'string' ? Buffer.from(request.stdin) : (request.stdin ?? new Uint8Array()),
    maxOutputBytes,
    ...(pty === undefined ? {} : { pty }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(request.signal === undefined ? {} : { signal: request.signal }),
    ...(request.onOutput === undefined ? {} : { onOutput: request.onOutput }),
  }
}
