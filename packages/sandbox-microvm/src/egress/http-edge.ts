import { Agent, createServer, type IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { codeOf } from '@reve/base'
import { deny, type HttpSide, type Line, MOST_HEAD_BYTES } from './http-line.ts'
import { forward } from './http-request.ts'

/** Serves such connections. */
export type HttpEdge = { serve(stream: Duplex, side: HttpSide): void }

/**
 * Passes HTTP/1 on, request by request: each is checked against the host that was dialled, and has its placeholders replaced.
 * One connection of the guest is one connection to the host, and ends with it, so that clients retry as they would without us.
 */
export function createHttpEdge(): HttpEdge {
  const lines = new WeakMap<object, Line>()
  const all = { active: 0 }
  const server = createServer({
    keepAliveTimeout: 0,
    requestTimeout: 0,
    headersTimeout: 0,
    maxHeaderSize: MOST_HEAD_BYTES / 2,
    // What is no WebSocket is an ordinary request; where Node does not know this option, the listener below says no to some.
    shouldUpgradeCallback: isWebSocket,
  })

  const lineOf = (stream: object): Line => {
    const line = lines.get(stream)
    if (line === undefined) throw new TypeError('a request on a connection that nobody serves')
    return line
  }
  server.on('request', (request, response) => forward(lineOf(request.socket), request, response))
  // The host says whether to go on; its answer is passed on.
  server.on('checkContinue', (request, response) => forward(lineOf(request.socket), request, response))
  server.on('upgrade', (request, stream, head) => {
    const line = lineOf(stream)
    if (!isWebSocket(request) && head.length > 0) {
      stream.end(plainAnswer(501, 'only a WebSocket can be upgraded to'))
      return
    }
    if (head.length > 0) stream.unshift(head)
    const response = new ServerResponse(request)
    response.shouldKeepAlive = false
    response.assignSocket(request.socket)
    response.on('finish', () => stream.end())
    forward(line, request, response, isWebSocket(request) ? stream : undefined)
  })
  server.on('connect', (request, stream) => {
    const { side } = lineOf(stream)
    deny(side, 'host_header', request.url)
    stream.end(plainAnswer(405, 'this is no proxy: connect to the host itself'))
  })
  server.on('clientError', (error, stream) => {
    const line = lines.get(stream)
    if (line !== undefined && codeOf(error)?.startsWith('HPE_') === true) deny(line.side, 'malformed')
    if (stream.writable) stream.end(plainAnswer(400, 'the request cannot be read'))
    else stream.destroy()
  })

  return {
    serve: (stream, side) => {
      const agent = new LineAgent(side.open, () => {
        // Idle, the host closed: the guest's client must not send into it.
        if (line.active === 0) stream.end()
      })
      const line: Line = { side, agent, stream, active: 0, all, turn: Promise.resolve() }
      lines.set(stream, line)
      stream.on('error', () => stream.destroy())
      stream.on('close', () => agent.destroy())
      server.emit('connection', stream)
    },
  }
}

/** One connection at a time, opened when the first request needs it. */
class LineAgent extends Agent {
  readonly #open: () => Promise<Duplex>
  readonly #onEnd: () => void

  constructor(open: () => Promise<Duplex>, onEnd: () => void) {
    super({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 })
    this.#open = open
    this.#onEnd = onEnd
  }

  override createConnection(_options: unknown, done?: (error: Error | null, stream: Duplex) => void): undefined {
    void this.#connect(done)
  }

  // The agent's types ask for a stream beside an error; nobody reads it.
  async #connect(done: ((error: Error | null, stream: Duplex) => void) | undefined): Promise<void> {
    let stream: Duplex
    try {
      stream = await this.#open()
    } catch (error) {
      const failed = done as ((error: Error) => void) | undefined
      failed?.(error instanceof Error ? error : new Error('the connection failed'))
      return
    }
    stream.on('close', this.#onEnd)
    done?.(null, stream)
  }
}

const isWebSocket = ({ method, headers }: IncomingMessage): boolean =>
  method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket'

const WORDS = { 400: 'Bad Request', 405: 'Method Not Allowed', 501: 'Not Implemented' } as const

const plainAnswer = (status: keyof typeof WORDS, text: string): string => {
  const content = `reve sandbox: ${text}\n`
  return `HTTP/1.1 ${status} ${WORDS[status]}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: ${content.length}\r\n\r\n${content}`
}
