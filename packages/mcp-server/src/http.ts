import { createServer, type IncomingMessage, type Server as HttpListener, type ServerResponse } from 'node:http'
import { createMcpHandler, type AuthInfo } from '@modelcontextprotocol/server'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { messageOf } from '@reve/base'
import type { Computer } from './computer.ts'
import { ComputerError } from './errors.ts'
import { allowedHost, allowedOrigin } from './hosts.ts'
import { serverFactory, type Caller } from './mcp.ts'

export type HttpOptions = {
  /** Address to listen on. Anything but loopback serves every machine that can reach it. */
  readonly host: string
  /** Port; 0 lets the system choose one. */
  readonly port: number
  /** Host names (without port) under which clients may call, beside the loopback ones and `host`. */
  readonly allowedHosts?: readonly string[]
  /**
   * Milliseconds after which a call of the older protocol era is given up when its connection is gone (default 10,000): such
   * a client may have lost it without meaning to. In the newer era that is how a call is cancelled.
   */
  readonly graceMs?: number
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
   * Refuses new calls and says on `/healthz` that it is not ready, both with 503; waits up to `drainMs` for the calls in
   * flight, then cancels the rest and closes the listener. Calling it again shortens the wait to what that call says.
   */
  readonly close: (options: { readonly drainMs: number }) => Promise<void>
}

const bodyBytes = 4 << 20
/** A request that has not come in whole by then is cut off; how long its answer takes has no limit. */
const requestMs = 120_000

/**
 * Serves a computer over streamable HTTP at `/mcp`, without sessions. `GET /healthz` is the one anonymous route.
 *
 * @throws ComputerError `address_in_use`, `bad_address`.
 */
export async function serveHttp(computer: Computer, options: HttpOptions): Promise<HttpServer> {
  const callers = new WeakMap<AuthInfo, Caller>()
  const callerOf = (info: AuthInfo | undefined): Caller => {
    const caller = info === undefined ? undefined : callers.get(info)
    if (caller === undefined) throw new ComputerError('bad_call', 'the call has no seat')
    return caller
  }
  const onerror = (error: Error): void => options.onError?.(messageOf(error))
  const handler = createMcpHandler(serverFactory(computer, options.version, callerOf, options.graceMs ?? 10_000), {
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
    const path = pathOf(request.url)
    if (path === '/healthz') {
      if (request.method === 'GET' || request.method === 'HEAD')
        return send(response, draining ? 503 : 200, { ok: !draining })
      return send(response, 405, { error: 'only GET' }, { allow: 'GET' })
    }
    if (path !== '/mcp' && path !== '/mcp/')
      return send(response, 404, { error: `there is no ${path.slice(0, 100)} here; the endpoint is /mcp` })
    // Before the token is looked at: a client that probes with GET must not take the answer for a demand to log in.
    if (request.method !== 'POST')
      return send(response, 405, { error: 'only POST: this server has no sessions' }, { allow: 'POST' })
    const caller = callerOfHeader(computer, request.headers.authorization)
    if (caller === undefined) {
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
    if (draining)
      return send(
        response,
        503,
        { error: 'the computer is shutting down' },
        { 'retry-after': '5', connection: 'close' },
      )
    const auth: AuthInfo = { token: '', clientId: caller.seat.name, scopes: [] }
    callers.set(auth, caller)
    acceptBoth(request)
    flight.start(response)
    await serve(Object.assign(request, { auth, method: 'POST', url: '/mcp' }), response)
  }

  const listener = createServer(
    { maxHeaderSize: 32 << 10, requestTimeout: requestMs, headersTimeout: 20_000, keepAliveTimeout: 75_000 },
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
  listener.on('error', onerror)
  const name = options.host.includes(':') ? `[${options.host}]` : options.host

  return {
    url: `http://${name}:${port}/mcp`,
    port,
    close: async ({ drainMs }) => {
      draining = true
      await flight.landed(drainMs)
      const closed = new Promise<void>((resolve) => listener.close(() => resolve()))
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
    /** A call is in flight until its whole answer was handed to the system or its connection is gone: the response's `close`. */
    start: (response: ServerResponse): void => {
      if (response.closed) return
      open.add(response)
      response.once('close', () => {
        open.delete(response)
        settle()
      })
    },
    /** Resolves when nothing is in flight, or after `ms`. */
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

/** The path of a request's target, without the query; a target that is no address names nothing that is here. */
function pathOf(target = '/'): string {
  const address = target.startsWith('/') ? `http://localhost${target}` : target
  return URL.canParse(address) ? new URL(address).pathname : ''
}

function callerOfHeader(computer: Computer, header: string | undefined): Caller | undefined {
  const token = /^Bearer ([\x21-\x7e]{1,512})$/i.exec(header ?? '')?.[1]
  const seat = token === undefined ? undefined : computer.seats.authenticate(token)
  return token === undefined || seat === undefined ? undefined : { seat, token }
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
