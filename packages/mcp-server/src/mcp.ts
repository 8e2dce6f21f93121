import {
  Server,
  type AuthInfo,
  type McpServerFactory,
  type RequestId,
  type ServerContext,
} from '@modelcontextprotocol/server'
import type { Computer } from './computer.ts'
import { families } from './families/index.ts'
import { toolOf } from './family.ts'
import type { Seat } from './seats.ts'

/** What a client is told about the whole; clients cut it at about 2,000 characters. */
const instructions = `A computer: trees are immutable values named by 64 hex digits, refs are the only mutable names and move by compare-and-swap.
Import a repository with git.import, read and change trees with fs.*, run commands on a tree with exec.run (answered from a cache when known), move a ref to a new tree with ref.move, and send work out with git.export and git.push. Every change gives a new tree id; the old one stays.`

const tools = families.map(toolOf)

/** Who makes a call, and with what token: for the sake of its event, which must not hold it. */
export type Caller = { readonly seat: Seat; readonly token: string }

/** A long call says that it is alive at least this often, to clients that gave a progress token. */
const progressEveryMs = 10_000

/**
 * A factory of protocol servers over one computer: one for each request, in either era of the protocol. The seat was
 * authenticated before and stands in the request's auth info.
 */
export function serverFactory(
  computer: Computer,
  version: string,
  callerOf: (auth: AuthInfo | undefined) => Caller,
  graceMs: number,
): McpServerFactory {
  const flights = createFlights()
  return ({ authInfo, era }) => {
    const { seat, token } = callerOf(authInfo)
    const server = new Server({ name: 'kc', version }, { capabilities: { tools: {} }, instructions })
    server.setRequestHandler('tools/list', () => ({ tools }))
    server.setNotificationHandler('notifications/cancelled', ({ params }) => {
      if (params.requestId !== undefined) flights.cancel(seat, params.requestId)
    })
    server.setRequestHandler('tools/call', async (request, context) => {
      const heartbeat = createHeartbeat(context)
      const flight = flights.start(seat, context.mcpReq.id, context.mcpReq.signal, era === 'legacy' ? graceMs : 0)
      try {
        const result = await computer.call(seat, request.params.name, request.params.arguments ?? {}, {
          signal: flight.signal,
          token,
          progress: heartbeat.say,
        })
        return { content: [{ type: 'text', text: result.text }], isError: result.isError }
      } finally {
        heartbeat.stop()
        flight.end()
      }
    })
    return server
  }
}

/**
 * Calls that are running, by seat and request id. A client of the older era gives a call up by a notification that comes as
 * a request of its own, without a session to tie them together: it counts when it can only mean one call.
 */
function createFlights() {
  const running = new Map<string, Set<AbortController>>()
  const keyOf = (seat: Seat, id: RequestId): string => JSON.stringify([seat.name, id])
  return {
    start: (
      seat: Seat,
      id: RequestId,
      gone: AbortSignal,
      grace: number,
    ): { readonly signal: AbortSignal; readonly end: () => void } => {
      const key = keyOf(seat, id)
      const controller = new AbortController()
      const alike = running.get(key) ?? new Set()
      running.set(key, alike.add(controller))
      let timer: NodeJS.Timeout | undefined
      const giveUp = (): void => controller.abort()
      const lost = (): void => {
        if (grace === 0) giveUp()
        else timer = setTimeout(giveUp, grace)
      }
      if (gone.aborted) lost()
      else gone.addEventListener('abort', lost, { once: true })
      return {
        signal: controller.signal,
        end: () => {
          gone.removeEventListener('abort', lost)
          clearTimeout(timer)
          alike.delete(controller)
          if (alike.size === 0) running.delete(key)
        },
      }
    },
    cancel: (seat: Seat, id: RequestId): void => {
      const alike = [...(running.get(keyOf(seat, id)) ?? [])]
      if (alike.length === 1) alike[0]?.abort()
    },
  }
}

/** Progress notifications, at least every few seconds, for a client that asked for them. */
function createHeartbeat(context: ServerContext): { readonly say: (text: string) => void; readonly stop: () => void } {
  const token = context.mcpReq._meta?.progressToken
  if (token === undefined) return { say: () => undefined, stop: () => undefined }
  let progress = 0
  let message = 'running'
  const notify = (): void => {
    progress++
    // A client that has gone away aborts the call by itself; nothing else can be done about it here.
    context.mcpReq
      .notify({ method: 'notifications/progress', params: { progressToken: token, progress, message } })
      .catch(() => clearInterval(timer))
  }
  const timer = setInterval(notify, progressEveryMs)
  return {
    say: (text) => {
      message = text
      notify()
    },
    stop: () => clearInterval(timer),
  }
}
