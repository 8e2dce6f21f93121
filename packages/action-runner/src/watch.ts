import { join } from 'node:path'
import { collect, type OutputText } from './output.ts'
import type { Exit, LeftRunning, RunningCommand } from './sandbox.ts'
import type { Slot } from './slot.ts'

/** Milliseconds that the output is still read for after the command ended, if something else keeps it open. */
const drainMs = 250
/** Milliseconds between the request to end and the kill. */
const graceMs = 2_000
/** Milliseconds without a byte after which an output that something unreachable keeps open is given up. */
const idleMs = 1_000

/** Why a command was stopped, when it did not end by itself. */
type Stop = 'timeout' | 'cancelled'

/** A command that has ended, with everything that it started. */
export type Ended = {
  readonly exit: Exit
  /** Null: it ended by itself. */
  readonly stop: Stop | null
  readonly stdout: OutputText
  readonly stderr: OutputText
  readonly leftRunning: LeftRunning
}

/** Called with each piece of output as it comes. The bytes belong to the callee. */
export type OnOutput = (stream: 'stdout' | 'stderr', chunk: Uint8Array) => void

/** Where `watch` spools an output stream. */
export const spoolOf = (slot: Slot, stream: 'stdout' | 'stderr'): string => join(slot.out, stream)

/**
 * Sees a command to its end: reads its output, stops it when its time is up or the signal aborts (SIGTERM, two seconds, SIGKILL),
 * and ends whatever it left behind. Nothing of it runs when this settles, whether it succeeds or throws.
 *
 * @throws what writing a spool file threw (a full disk).
 */
export async function watch(
  command: RunningCommand,
  slot: Slot,
  limits: { readonly timeoutMs: number; readonly signal: AbortSignal },
  onOutput: OnOutput,
): Promise<Ended> {
  let seen = 0
  const reader = (stream: 'stdout' | 'stderr'): Promise<OutputText> =>
    collect(command[stream], spoolOf(slot, stream), (chunk) => {
      seen += chunk.length
      onOutput(stream, chunk)
    }).done
  const outputs = Promise.all([reader('stdout'), reader('stderr')])
  const spoolFailed = new Promise<'failed'>((resolve) => void outputs.catch(() => resolve('failed')))
  const stopped = stopOf(limits)
  try {
    const first = await Promise.race([command.exited.then(() => null), stopped.promise, spoolFailed])
    if (first === null) await within(drainMs, settled(outputs))
    else await askToEnd(command)
    const leftRunning = await command.leftRunning()
    await command.kill()
    const exit = await command.exited
    await drain(command, settled(outputs), () => seen)
    const [stdout, stderr] = await outputs
    return { exit, stop: first === 'failed' ? null : first, stdout, stderr, leftRunning }
  } finally {
    stopped.forget()
    await command.kill()
    command.stdout.destroy()
    command.stderr.destroy()
  }
}

function stopOf(limits: { readonly timeoutMs: number; readonly signal: AbortSignal }): {
  readonly promise: Promise<Stop>
  forget(): void
} {
  const { promise, resolve } = Promise.withResolvers<Stop>()
  const onAbort = (): void => resolve('cancelled')
  const timer = setTimeout(() => resolve('timeout'), limits.timeoutMs)
  limits.signal.addEventListener('abort', onAbort, { once: true })
  if (limits.signal.aborted) onAbort()
  return {
    promise,
    forget(): void {
      clearTimeout(timer)
      limits.signal.removeEventListener('abort', onAbort)
    },
  }
}

async function askToEnd(command: RunningCommand): Promise<void> {
  command.terminate()
  const until = performance.now() + graceMs
  await within(graceMs, command.exited)
  while (performance.now() < until && (await command.leftRunning()).count > 0) await within(20)
}

/** Reads what is still in the pipes. They end by themselves unless something out of reach holds them. */
async function drain(command: RunningCommand, done: Promise<true>, seen: () => number): Promise<void> {
  let last = -1
  while (seen() !== last || command.stdout.readableLength + command.stderr.readableLength > 0) {
    last = seen()
    if (await within(idleMs, done)) return
  }
  command.stdout.destroy()
  command.stderr.destroy()
}

const settled = (promise: Promise<unknown>): Promise<true> =>
  promise.then(
    () => true,
    () => true,
  )

/** True if the promise settles (well) within the time. */
async function within(ms: number, promise: Promise<unknown> = new Promise(() => undefined)): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<false>()
  const timer = setTimeout(() => resolve(false), ms)
  try {
    return await Promise.race([promise.then(() => true), late])
  } finally {
    clearTimeout(timer)
  }
}
