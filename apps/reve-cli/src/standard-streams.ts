import { codeOf, messageOf } from '@reve/base'
import { exitCode } from './exit-codes.ts'

/**
 * Makes this process survive the end of whoever reads it (`| head -1`): the work is asked to stop as by Ctrl-C instead of
 * dying half way. What else keeps output from being written (a full disk) is said, and no success.
 *
 * @returns aborted when standard output or error has no reader any more.
 */
export function guardStreams(): AbortSignal {
  const unread = new AbortController()
  let said = false
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error) => {
      unread.abort()
      if (isBrokenPipe(error) || said) return
      said = true
      // Whatever the command comes to, or was stopped with by this: its result did not arrive.
      process.on('exit', (code) => {
        if (code === exitCode.done || code === exitCode.interrupted) process.exitCode = exitCode.failed
      })
      if (stream === process.stdout)
        process.stderr.write(`reve: standard output cannot be written: ${messageOf(error)}\n`)
    })
  }
  return unread.signal
}

export const isBrokenPipe = (error: unknown): boolean => codeOf(error) === 'EPIPE'
