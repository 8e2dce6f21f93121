/** A request of the MCP client. */
export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>

/** How many bytes a server may make us hold. */
export type FetchLimits = {
  /** Of an answer that is one document, or of one event of a stream (default 32 MiB). */
  readonly bytes: number
  /** Of the text of a refusal; what comes after is dropped (default 64 KiB). */
  readonly errorBytes: number
}

const defaults: FetchLimits = { bytes: 32 << 20, errorBytes: 64 << 10 }

/** The same fetch, whose answers' bodies end with an error once they are too much to hold. */
export function boundedFetch(fetch: Fetch, limits: FetchLimits = defaults): Fetch {
  return async (url, init) => {
    const response = await fetch(url, init)
    if (response.body === null) return response
    const body = response.body.pipeThrough(limiterFor(response, limits))
    return new Response(body, { status: response.status, statusText: response.statusText, headers: response.headers })
  }
}

function limiterFor(response: Response, { bytes, errorBytes }: FetchLimits): TransformStream<Uint8Array, Uint8Array> {
  if (!response.ok) {
    let left = errorBytes
    return new TransformStream({
      transform: (chunk, controller) => {
        controller.enqueue(chunk.subarray(0, left))
        left -= chunk.length
        if (left <= 0) controller.terminate()
      },
    })
  }
  const isStream = /^text\/event-stream\b/i.test(response.headers.get('content-type') ?? '')
  const since = isStream ? createEventCounter() : (count: number, chunk: Uint8Array): number => count + chunk.length
  let held = 0
  return new TransformStream({
    transform: (chunk, controller) => {
      held = since(held, chunk)
      if (held > bytes) controller.error(new Error(`the server sent more than ${bytes} bytes at once`))
      else controller.enqueue(chunk)
    },
  })
}

const LF = 0x0a
const CR = 0x0d

/** Counts the bytes since the last empty line, which ends an event. */
function createEventCounter(): (count: number, chunk: Uint8Array) => number {
  let isLineEmpty = true
  let last = 0
  return (count, chunk) => {
    let held = count
    for (const byte of chunk) {
      held += 1
      if (byte === LF && last === CR) {
        // One end of a line, written with two bytes.
      } else if (byte === LF || byte === CR) {
        if (isLineEmpty) held = 0
        isLineEmpty = true
      } else isLineEmpty = false
      last = byte
    }
    return held
  }
}
