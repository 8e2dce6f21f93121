import type { ExecResult } from '@reve/sandbox-microvm'
import { outputText } from './guest.ts'

/** The end of a stream whose beginning is kept by others: what comes in between is dropped. */
export type StreamEnd = {
  add(chunk: Uint8Array): void
  /** The last bytes that came, at most so many. */
  last(count: number): Uint8Array
}

/** Bytes of the end that are kept. */
export const endBytes = 64 << 10

export function createStreamEnd(): StreamEnd {
  let chunks: Uint8Array[] = []
  let length = 0
  return {
    add(chunk) {
      // A copy of what is needed: a part would hold all of it in memory.
      const piece = Uint8Array.from(chunk.subarray(-endBytes))
      chunks.push(piece)
      length += piece.length
      // Put together now and then, so that many small pieces are not gone through each time.
      if (length > 2 * endBytes) {
        const joined = Uint8Array.from(Buffer.concat(chunks).subarray(-endBytes))
        chunks = [joined]
        length = joined.length
      }
    },
    last: (count) => (count <= 0 ? new Uint8Array() : Buffer.concat(chunks).subarray(-Math.min(count, endBytes))),
  }
}

/** The ends of a command's streams. */
export type StreamEnds = { readonly stdout: StreamEnd; readonly stderr: StreamEnd }

/** A command's outcome as the model reads it: stdout, stderr, then what is not as usual. */
export function commandText(result: ExecResult, timeoutSeconds?: number, ends?: StreamEnds): string {
  const parts = [
    streamText(result.stdout, result.stdoutBytes, ends?.stdout),
    streamText(result.stderr, result.stderrBytes, ends?.stderr),
  ].filter((part) => part !== '')
  if (result.timedOut) {
    const left = result.leftRunning.length > 0 ? `; still running and killed: ${result.leftRunning.join(', ')}` : ''
    parts.push(`(timed out after ${timeoutSeconds ?? '?'} s${left})`)
  } else if (result.cancelled) parts.push('(cancelled: the command was killed)')
  else if (result.exitCode !== 0) parts.push(`(exit ${result.exitCode})`)
  return parts.join('\n') || '(no output)'
}

function streamText(kept: Uint8Array, total: number, end: StreamEnd | undefined): string {
  const dropped = total - kept.length
  if (dropped === 0) return folded(outputText(kept)).trimEnd()
  const last = wholeCharacters(end?.last(dropped) ?? new Uint8Array())
  const head = new TextDecoder('utf-8', { ignoreBOM: true }).decode(kept, { stream: true })
  const missing = `(${dropped - last.length} more bytes of output were not kept)`
  return `${folded(head)}\n${missing}\n${folded(outputText(last))}`.trimEnd()
}

/** Without the rest of a character at the start. */
function wholeCharacters(bytes: Uint8Array): Uint8Array {
  const start = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80)
  return start > 0 && start < 4 ? bytes.subarray(start) : bytes
}

/** A line that was written over so often is progress, of which the end counts. */
const fewStates = 3

/** Lines that return to their start again and again, as on a terminal: by what they last were. */
function folded(text: string): string {
  if (!text.includes('\r')) return text
  return text.split('\n').map(foldLine).join('\n')
}

function foldLine(line: string): string {
  const states = line.replace(/\r$/, '').split('\r')
  if (states.length <= fewStates) return line
  const last = states.findLast((state) => state.trim() !== '') ?? ''
  return `${last} (${states.length - 1} earlier states of this line are left out)`
}
