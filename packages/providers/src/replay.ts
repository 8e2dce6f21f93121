/**
 * Recording what a server sends, to play it again in a test without it: subpath `@reve/providers/replay`. Headers of a
 * request are never recorded, and of an answer's only those that say something about its content.
 */

/** One exchange, as plain JSON. */
export type Recording = {
  readonly version: 1
  /** Without its query: a key may stand there. */
  readonly url: string
  /** The JSON that was sent, if it was JSON. */
  readonly request: unknown
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** The body, each piece as it came; one that is cut within a character is written in base64. */
  readonly pieces: readonly (string | { readonly base64: string })[]
  /** `dropped`: the connection broke after the last piece. */
  readonly end: 'end' | 'dropped'
}

const KEPT = ['content-type', 'retry-after', 'retry-after-ms', 'x-should-retry', 'x-request-id', 'request-id']

/** A fetch that asks by `fetch` and hands each exchange on once its body has ended, was left, or broke. */
export function recordingFetch(
  onRecording: (recording: Recording) => void,
  fetch: typeof globalThis.fetch = globalThis.fetch,
): typeof globalThis.fetch {
  return async (input, init) => {
    const request = new Request(input, init)
    const sent = request.body === null ? '' : await request.clone().text()
    const response = await fetch(request)
    const { origin, pathname } = new URL(request.url)
    const headers = Object.fromEntries([...response.headers].filter(([name]) => KEPT.includes(name)))
    const pieces: Recording['pieces'][number][] = []
    let told = false
    const tell = (end: Recording['end']): void => {
      if (told) return
      told = true
      onRecording({
        version: 1,
        url: `${origin}${pathname}`,
        request: jsonOf(sent),
        status: response.status,
        headers,
        pieces,
        end,
      })
    }
    const reader = response.body?.getReader()
    if (reader === undefined) {
      tell('end')
      return response
    }
    const body = new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        try {
          const piece = await reader.read()
          if (piece.done) {
            tell('end')
            return controller.close()
          }
          pieces.push(pieceOf(piece.value))
          controller.enqueue(piece.value)
        } catch (error) {
          tell('dropped')
          controller.error(error)
        }
      },
      cancel: async (reason) => {
        tell('end')
        await reader.cancel(reason)
      },
    })
    return new Response(body, { status: response.status, headers: response.headers })
  }
}

/**
 * A fetch that answers with recordings, one after the other, piece by piece.
 *
 * @param cut cuts the bytes of an answer in another way than they came; what it gives has to be the same bytes
 */
export function replayingFetch(
  recordings: readonly Recording[],
  cut: (bytes: Uint8Array) => readonly Uint8Array[] = (bytes) => [bytes],
): typeof globalThis.fetch {
  const left = [...recordings]
  return async () => {
    const recording = left.shift()
    if (recording === undefined) throw new Error('every recording was played; there is none for this request')
    const pieces = recording.pieces.flatMap((piece) => cut(bytesOf(piece)))
    let next = 0
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        const piece = pieces[next++]
        if (piece !== undefined) controller.enqueue(piece)
        else if (recording.end === 'dropped') controller.error(new TypeError('terminated'))
        else controller.close()
      },
    })
    // A status without a body takes none.
    const isEmpty = [101, 204, 205, 304].includes(recording.status)
    return new Response(isEmpty ? null : body, { status: recording.status, headers: recording.headers })
  }
}

function pieceOf(bytes: Uint8Array): Recording['pieces'][number] {
  const text = Buffer.from(bytes).toString()
  return Buffer.from(text).equals(bytes) ? text : { base64: Buffer.from(bytes).toString('base64') }
}

const bytesOf = (piece: Recording['pieces'][number]): Uint8Array =>
  typeof piece === 'string' ? Buffer.from(piece) : Buffer.from(piece.base64, 'base64')

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return text
    throw error
  }
}
