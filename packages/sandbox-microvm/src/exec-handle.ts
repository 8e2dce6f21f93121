import { MicroVmError } from './errors.ts'
import { checkSize, type CommandControl } from './execution.ts'
import { type ByteSource, type ExecHandle, type ExecResult, SIGNALS } from './spec.ts'

/** An input that is written piece by piece; a write resolves when its piece is taken. */
function writtenInput(): {
  readonly source: ByteSource
  write(bytes: Uint8Array): Promise<void>
  end(): void
  /** What was not taken is dropped, and whoever waits for it goes on. */
  readonly close: () => void
} {
  const pieces: { readonly bytes: Uint8Array; readonly taken: () => void }[] = []
  let state: 'open' | 'ended' | 'closed' = 'open'
  let changed = Promise.withResolvers<void>()
  const change = (): void => {
    changed.resolve()
    changed = Promise.withResolvers()
  }
  const close = (): void => {
    state = 'closed'
    for (const { taken } of pieces.splice(0)) taken()
    change()
  }
  const next = async (): Promise<IteratorResult<Uint8Array, undefined>> => {
    for (;;) {
      const piece = pieces.shift()
      if (piece !== undefined) {
        piece.taken()
        return { done: false, value: piece.bytes }
      }
      if (state !== 'open') return { done: true, value: undefined }
      await changed.promise
    }
  }
  return {
    source: {
      [Symbol.asyncIterator]: () => ({
        next,
        return: async () => {
          close()
          return { done: true, value: undefined }
        },
      }),
    },
    write: (bytes) => {
      if (state === 'ended') return Promise.reject(new MicroVmError('bad_spec', 'the input was ended already'))
      if (state === 'closed') return Promise.resolve()
      const { promise, resolve } = Promise.withResolvers<void>()
      pieces.push({ bytes, taken: resolve })
      change()
      return promise
    },
    end: () => {
      if (state === 'open') state = 'ended'
      change()
    },
    close,
  }
}

/** A handle on what `run` runs; what is said before the command begins is said when it does. */
export function createHandle(
  run: (input: ByteSource, onBegin: (control: CommandControl) => void) => Promise<ExecResult>,
): ExecHandle {
  const input = writtenInput()
  const early: ((control: CommandControl) => void)[] = []
  let control: CommandControl | undefined
  const say = (what: (control: CommandControl) => void): void => {
    if (control === undefined) early.push(what)
    else what(control)
  }
  const result = run(input.source, (begun) => {
    control = begun
    for (const what of early.splice(0)) what(begun)
  })
  // A write after the end waits for nobody; and who never asks for the result must not end the process by a failure in it.
  result.then(input.close, input.close)
  return {
    result,
    write: (bytes) => input.write(typeof bytes === 'string' ? Buffer.from(bytes) : bytes),
    end: () => input.end(),
    resize: (size) => {
      const checked = checkSize(size)
      say((begun) => begun.resize(checked))
    },
    kill: (signal = 'SIGTERM') => {
      if (!Object.hasOwn(SIGNALS, signal)) throw new MicroVmError('bad_spec', `"${signal}" is not a signal`)
      say((begun) => begun.signal(signal))
    },
  }
}
