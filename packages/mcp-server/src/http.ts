import { createServer, type IncomingMessage, type Server as HttpListener, type ServerResponse } from 'node:http'
import { createMcpHandler, type AuthInfo } from '@modelcontextprotocol/server'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { messageOf } from '@reve/base'
import type { Computer } from './computer.ts'
import { ComputerError } from './errors.ts'
import { allowedHost, allowedOrigin } from './hosts.ts'
import { serverFactory } from './mcp.ts'
import type { Seat } from './seats.ts'

export type HttpOptions = {
  /** Address to listen on. Anything but loopback serves every machine that can reach it. */
  readonly host: string
  /** Port; 0 lets the system choose one. */
  readonly port: number
  /** Host names (without port) under which clients may call, beside the loopback ones and `host`. */
  readonly allowedHosts?: readonly string[]
  /** The version that clients are told. */
  readonly version: string
  /** Something went wrong that no client asked about. */
  readonly onError?: (message: string) => void
}

export type HttpServer = {
  /** The address of the MCP endpoint. */
  readonly url: string
  readonly port: number
  /**
   * Refuses new calls with 503, waits up to `drainMs` for those in flight, then cancels the rest and closes. Calling it
   * again cuts the wait short.
   */
  readonly close: (options: { readonly drainMs: number }) => Promise<void>
}

const bodyBytes = 4 << 20

/**
 * Serves a computer over streamable HTTP at `/mcp`, without sessions. `GET /healthz` is the one anonymous route.
 *
 * @throws ComputerError `address_in_use`, `bad_address`.
 */
export async function serveHttp(computer: Computer, options: HttpOptions): Promise<HttpServer> {
  const seats = new WeakMap<AuthInfo, Seat>()
  const seatOf = (info: AuthInfo | undefined): Seat => {
    const seat = info === undefined ? undefined : seats.get(info)
    if (seat === undefined) throw new ComputerError('bad_call', 'the call has no seat')
    return seat
  }
  const onerror = (error: Error): void => options.onError?.(messageOf(error))
  const handler = createMcpHandler(serverFactory(computer, options.version, seatOf), {
    onerror,
    maxRequestBodySize: bodyBytes,
  })
  const serve = toNodeHandler(handler, { onerror, maxRequestBodySize: bodyBytes })
  const flight = createFlight()
  let draining = false

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (!allowedHost(request.headers.host, options) || !allowedOrigin(request.headers.origin, options)) {
      return send(response, 403, {
        error: 'this Host or Origin is not allowed; set KC_ALLOWED_HOSTS to serve under another name',
      })
    }
    const path = new URL(request.url ?? '/', 'http://localhost').pathname
    if (path === '/healthz') {
      if (request.method === 'GET' || request.method === 'HEAD') return send(response, 200, { ok: true })
      return send(response, 405, { error: 'only GET' }, { allow: 'GET' })
    }
    if (path !== '/mcp' && path !== '/mcp/')
      return send(response, 404, { error: `there is no ${path.slice(0, 100)} here; the endpoint is /mcp` })
    // Before the token is looked at: a client that probes with GET must not take the answer for a demand to log in.
    if (request.method !== 'POST')
      return send(response, 405, { error: 'only POST: this server has no sessions' }, { allow: 'POST' })
    const seat = seatOfHeader(computer, request.headers.authorization)
    if (seat === undefined) {
      return send(
        response,
        401,
        {
          error:
            'send the seat\'s token in the header "Authorization: Bearer <token>"; "kc seat create <name>" prints one',
        },
        { 'www-authenticate': 'Bearer realm="kc", error="invalid_token"' },
      )
    }
    if (draining) return send(response, 503, { error: 'the computer is shutting down' }, { 'retry-after': '5' })
    const auth: AuthInfo = { token: '', clientId: seat.name, scopes: [] }
    seats.set(auth, seat)
    acceptBoth(request)
    const done = flight.start(response)
    try {
      await serve(Object.assign(request, { auth, method: 'POST', url: request.url ?? '/mcp' }), response)
    } finally {
      done()
    }
  }

  const listener = createServer(
    { maxHeaderSize: 32 << 10, requestTimeout: 0, headersTimeout: 20_000, keepAliveTimeout: 75_000 },
    (request, response) => {
      answer(request, response).catch((error: unknown) => {
        options.onError?.(messageOf(error))
        if (response.headersSent) response.destroy()
        else send(response, 500, { error: 'internal error' })
      })
    },
  )
  listener.maxHeadersCount = 100
  const port = await listen(listener, options)
  const name = options.host.includes(':') ? `[${options.host}]` : options.host

  return {
    url: `http://${name}:${port}/mcp`,
    port,
    close: async ({ drainMs }) => {
      draining = true
      const closed = new Promise<void>((resolve) => listener.close(() => resolve()))
      listener.closeIdleConnections()
      await flight.landed(drainMs)
      flight.cancel()
      await handler.close()
      listener.closeAllConnections()
      await closed
    },
  }
}

/** Calls that are being answered. */
function createFlight() {
  const open = new Set<ServerResponse>()
  let waiting: (() => void)[] = []
  const settle = (): void => {
    if (open.size > 0) return
    waiting.forEach((resolve) => resolve())
    waiting = []
  }
  return {
    start: (response: ServerResponse): (() => void) => {
      open.add(response)
      const end = (): void => {
        open.delete(response)
        settle()
      }
      response.on('close', end)
      return () => {
        if (response.writableEnded) end()
      }
    },
    /** Resolves when nothing is in flight, or after `ms`, or when asked to wait less by a second call. */
    landed: (ms: number): Promise<void> => {
      if (open.size === 0) return Promise.resolve()
      return new Promise((resolve) => {
        const timer = setTimeout(resolve, ms)
        waiting.push(() => {
          clearTimeout(timer)
          resolve()
        })
      })
    },
    /** A closed connection aborts its call. */
    cancel: (): void => open.forEach((response) => response.destroy()),
  }
}

function seatOfHeader(computer: Computer, header: string | undefined): Seat | undefined {
  const token = /^Bearer ([\x21-\x7e]{1,512})$/i.exec(header ?? '')?.[1]
  return token === undefined ? undefined : computer.seats.authenticate(token)
}

/** Some clients name one of the two media types; the answer suits either. */
function acceptBoth(request: IncomingMessage): void {
  const both = 'application/json, text/event-stream'
  request.headers.accept = both
  const index = request.rawHeaders.findIndex((name, at) => at % 2 === 0 && name.toLowerCase() === 'accept')
  if (index < 0) request.rawHeaders.push('Accept', both)
  else request.rawHeaders[index + 1] = both
}

function send(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...headers,
  })
  response.end(JSON.stringify(body))
}

function listen(listener: HttpListener, { host, port }: HttpOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    listener.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') {
        reject(
          new ComputerError(
            'address_in_use',
            `${host}:${port} is in use; stop what listens there, or choose another port with --port or KC_PORT`,
            { cause: error },
          ),
        )
      } else
        reject(new ComputerError('bad_address', `cannot listen on ${host}:${port}: ${error.message}`, { cause: error }))
    })
    listener.listen(port, host, () => {
      const address = listener.address()
      resolve(typeof address === 'object' && address !== null ? address.port : port)
    })
  })
}
