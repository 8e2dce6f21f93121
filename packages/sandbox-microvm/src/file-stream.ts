/**
 * A stream of what `read` hands to `onChunk`. It begins when somebody reads, is not ahead of the reader by more than a
 * chunk, and stops when the stream is cancelled.
 */
export function streamOf(
  read: (onChunk: (chunk: Uint8Array) => Promise<void>, signal: AbortSignal) => Promise<void>,
): ReadableStream<Uint8Array> {
  const stop = new AbortController()
  let wanted: PromiseWithResolvers<void> | undefined
  const begin = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    try {
      await read((chunk) => {
        const next = Promise.withResolvers<void>()
        wanted = next
        // A copy: whoever reads may hand its memory on.
        controller.enqueue(Uint8Array.from(chunk))
        return next.promise
      }, stop.signal)
      if (!stop.signal.aborted) controller.close()
    } catch (error) {
      controller.error(error)
    }
  }
  return new ReadableStream(
    {
      pull: (controller) => {
        if (wanted === undefined) {
          wanted = Promise.withResolvers()
          void begin(controller)
        } else wanted.resolve()
      },
      cancel: () => {
        stop.abort()
        wanted?.resolve()
      },
    },
    { highWaterMark: 0 },
  )
}
