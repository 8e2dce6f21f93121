import { MicroVmError } from './errors.ts'
import { creditPayload, execPayload, type GuestFrame, MAX_TO_GUEST, toGuest, WINDOW_BYTES } from './frames.ts'
import type { ExecRequest, ExecResult } from './spec.ts'

/** An exec request with everything filled in. */
export type GuestCommand = Required<Pick<ExecRequest, 'argv' | 'cwd' | 'env' | 'maxOutputBytes'>> &
  Pick<ExecRequest, 'timeoutMs' | 'signal' | 'onOutput'> & { readonly stdin: Uint8Array }

/** One command in the guest, seen from the host. */
export type Execution = {
  readonly result: Promise<ExecResult>
  begin(): void
  /** Takes one frame of its channel; throws `guest_lost` when the guest may not send it now. */
  handle(frame: GuestFrame): 'running' | 'ended'
  fail(error: MicroVmError): void
}

/** How long the guest may take to report the end of what was killed. */
const KILL_MS = 30_000
/** Input travels in pieces, so that a large one does not hold other commands up. */
const STDIN_CHUNK = 32 * 1024
/** Grants are collected: one frame for each quarter of a window. */
const GRANT_BYTES = WINDOW_BYTES / 4

/** A stream of which the first `limit` bytes are kept and all are counted. */
class Collected {
  readonly #limit: number
  readonly #chunks: Uint8Array[] = []
  #kept = 0
  total = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  add(bytes: Uint8Array): void {
    this.total += bytes.length
    const room = this.#limit - this.#kept
    if (room <= 0) return
    // A copy: the frame is a window into a larger buffer that must not be kept alive.
    const kept = Uint8Array.from(bytes.subarray(0, room))
    this.#chunks.push(kept)
    this.#kept += kept.length
  }

  bytes(): Uint8Array {
    return new Uint8Array(Buffer.concat(this.#chunks))
  }
}

/** Follows `command` on one channel: sends its input as far as the guest grants, collects its output, kills it in time. */
export function createExecution(
  command: GuestCommand,
  io: {
    readonly send: (type: number, payload?: Uint8Array) => void
    readonly fail: (error: MicroVmError) => void
    readonly now: () => number
  },
): Execution {
  const { promise, resolve, reject } = Promise.withResolvers<ExecResult>()
  const streams = { stdout: new Collected(command.maxOutputBytes), stderr: new Collected(command.maxOutputBytes) }
  const startedAt = io.now()
  let killed: 'cancelled' | 'timedOut' | undefined
  let timer: NodeJS.Timeout | undefined
  let killTimer: NodeJS.Timeout | undefined
  let callerError: { readonly error: unknown } | undefined
  let sent = 0
  let inputCredit = WINDOW_BYTES
  let outputCredit = WINDOW_BYTES
  let toGrant = 0

  const kill = (why: 'cancelled' | 'timedOut'): void => {
    if (killed !== undefined) return
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
  }
  const onAbort = (): void => kill('cancelled')

  const end = (): void => {
    clearTimeout(timer)
    clearTimeout(killTimer)
    command.signal?.removeEventListener('abort', onAbort)
  }

  const feed = (): void => {
    while (sent < command.stdin.length && inputCredit > 0) {
      const piece = command.stdin.subarray(sent, sent + Math.min(inputCredit, STDIN_CHUNK))
      io.send(toGuest.stdin, piece)
      sent += piece.length
      inputCredit -= piece.length
      if (sent === command.stdin.length) io.send(toGuest.stdinEnd)
    }
  }

  const take = (stream: 'stdout' | 'stderr', bytes: Uint8Array): void => {
    outputCredit -= bytes.length
    if (outputCredit < 0)
      throw new MicroVmError('guest_lost', 'the guest sent more output than was granted; the VM is stopped')
    streams[stream].add(bytes)
    try {
      command.onOutput?.(stream, bytes)
    } catch (error) {
      // The caller's own failure: it ends this command, not the VM.
      callerError ??= { error }
      kill('cancelled')
    }
    toGrant += bytes.length
    if (toGrant < GRANT_BYTES) return
    io.send(toGuest.credit, creditPayload(toGrant))
    outputCredit += toGrant
    toGrant = 0
  }

  const finish = ({ code, signal, killed: wasKilled, left }: Extract<GuestFrame, { type: 'exit' }>): void => {
    end()
    if (callerError !== undefined) return reject(callerError.error)
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
    begin: () => {
      io.send(toGuest.exec, execPayload(command.argv, command.env, command.cwd))
      if (command.stdin.length === 0) io.send(toGuest.stdinEnd)
      else feed()
      if (command.timeoutMs !== undefined) timer = setTimeout(() => kill('timedOut'), command.timeoutMs)
      if (command.signal?.aborted === true) kill('cancelled')
      else command.signal?.addEventListener('abort', onAbort, { once: true })
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
          inputCredit += frame.bytes
          if (inputCredit > WINDOW_BYTES)
            throw new MicroVmError('guest_lost', 'the guest granted more input than it was sent; the VM is stopped')
          feed()
          return 'running'
        case 'exit':
          finish(frame)
          return 'ended'
        case 'error':
          end()
          reject(new MicroVmError('guest_lost', `the guest could not start the command: ${frame.text}`))
          return 'ended'
        case 'ready':
        case 'pong':
        case 'done':
          throw new MicroVmError('guest_lost', `the guest sent a ${frame.type} frame for a command; the VM is stopped`)
        default:
          return frame satisfies never
      }
    },
    fail: (error) => {
      end()
      reject(error)
    },
  }
}

/** The command as the guest gets it, or a `bad_spec` that says what is wrong with it. */
export function checkCommand(
  request: ExecRequest,
  defaults: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): GuestCommand {
  const wrong = (text: string): MicroVmError => new MicroVmError('bad_spec', `exec: ${text}`)
  const env = { ...defaults.env, ...request.env }
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
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(request.signal === undefined ? {} : { signal: request.signal }),
    ...(request.onOutput === undefined ? {} : { onOutput: request.onOutput }),
  }
}
