import { createServer } from 'node:http'
import type { IncomingHttpHeaders, Server } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

/** One answer of the fixture server: pieces are sent as one HTTP chunk each. */
export type FixtureReply = {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly pieces?: readonly (string | Uint8Array)[]
  /** Milliseconds between two pieces; without it the network may join them. */
  readonly gapMs?: number
  /** What happens after the last piece: a clean end, a cut connection, or silence. */
  readonly after?: 'end' | 'destroy' | 'hang'
  /** Never even sends headers. */
  readonly mute?: true
}
export type SeenRequest = {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: Readonly<Record<string, unknown>>
}
export type FixtureServer = {
  readonly url: string
  readonly requests: readonly SeenRequest[]
  /** Resolves when the client has closed the connection of the request with this number. */
  readonly closed: (index: number) => Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** A real HTTP server on loopback that answers every request by `reply`. */
export async function serve(reply: (index: number) => FixtureReply): Promise<FixtureServer> {
  const requests: SeenRequest[] = []
  const closings: PromiseWithResolvers<void>[] = []
  const closing = (index: number): PromiseWithResolvers<void> => (closings[index] ??= Promise.withResolvers<void>())
  const server = createServer((request, response) => {
    const bytes: Uint8Array[] = []
    request.on('data', (chunk: Uint8Array) => bytes.push(chunk))
    const answer = async (): Promise<void> => {
      const index = requests.length
      const text = Buffer.concat(bytes).toString('utf8')
      const body = JSON.parse(text === '' ? '{}' : text) as Readonly<Record<string, unknown>>
      requests.push({ path: request.url ?? '', headers: request.headers, body })
      response.on('close', () => closing(index).resolve())
      const { status = 200, headers, pieces = [], after = 'end', gapMs, mute } = reply(index)
      if (mute) return
      response.writeHead(status, { 'content-type': 'text/event-stream', ...headers })
      response.flushHeaders()
      for (const piece of pieces) {
        response.write(piece)
        if (gapMs !== undefined) await sleep(gapMs)
      }
      if (after === 'end') response.end()
      // The pieces must be on their way before the connection goes.
      if (after === 'destroy') setTimeout(() => response.destroy(), 20)
    }
    request.on('end', () => void answer())
  })
  await listen(server)
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return {
    url: `http://127.0.0.1:${address.port}`,
    requests,
    closed: (index) => closing(index).promise,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function listen(server: Server): Promise<void> {
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
}
