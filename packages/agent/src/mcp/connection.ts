import { Client, type JSONRPCMessage, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { JsonObject } from '@reve/providers/model'
import * as v from 'valibot'
import { boundedFetch, type Fetch } from './bounded-fetch.ts'
import { failureOf, lostCode } from './failure.ts'
import type { ListedTool } from './listed-tool.ts'
import { mostTools } from './listed-tool.ts'
import { plainText } from './text.ts'

/** A connection to an MCP server that both sides have agreed on. Everything rejects with an McpError. */
export type Connection = {
  /** What the server says of itself to a model. */
  readonly instructions: string
  list(signal: AbortSignal): Promise<readonly unknown[]>
  call(
    tool: ListedTool,
    args: JsonObject,
    options: { readonly signal: AbortSignal; readonly progress: (text: string) => void },
  ): Promise<unknown>
  /** Ends the session, as far as the server answers soon. */
  close(): Promise<void>
}

export type ConnectOptions = {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly fetch: Fetch
  readonly version: string
  readonly signal: AbortSignal
  readonly limits: McpLimits
  /** The server says that its list of tools is another one now. */
  readonly onChanged: () => void
}

/** Times, in milliseconds. */
export type McpLimits = {
  /** For one answer while connecting or listing (default 15 000). */
  readonly answerMs: number
  /** How long a call may say nothing (default 240 000), and take in all (default an hour). */
  readonly silentMs: number
  readonly callMs: number
}

const Page = v.object({ nextCursor: v.optional(v.string()) })
const ListResult = v.looseObject({ tools: v.array(v.unknown()) })
const mostPages = 50
const instructionCharacters = 4000
const goodbyeMs = 2000

/** Finds out which era of the protocol the server speaks, and begins in it. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  try {
    return await connectAs(options, 'auto')
  } catch (error) {
    // Some older servers break at a method that they do not know.
    if (!(error instanceof Error && isServerError(error))) throw error
    return connectAs(options, 'legacy')
  }
}

const isServerError = ({ cause }: Error): boolean =>
  cause instanceof Error && 'status' in cause && typeof cause.status === 'number' && cause.status >= 500

async function connectAs(options: ConnectOptions, mode: 'auto' | 'legacy'): Promise<Connection> {
  const { url, headers, signal, limits, version, onChanged } = options
  const transport = new WatchedTransport(url, {
    fetch: boundedFetch(options.fetch),
    requestInit: { headers: { ...headers } },
    // A header that shows who asks goes to no other origin.
    redirectPolicy: 'same-origin',
    reconnectionScheduler: (reconnect, delay) => {
      // The server names the delay, and may name none.
      const timer = setTimeout(reconnect, Math.min(Math.max(delay, 1000), 30_000))
      timer.unref()
      return () => clearTimeout(timer)
    },
  })
  const client = new Client({ name: 'reve', version }, { capabilities: {}, versionNegotiation: { mode } })
  const failed = (error: unknown, given: AbortSignal) =>
    failureOf(error, { hasSession: transport.sessionId !== undefined, isAborted: given.aborted })
  const giveUp = (): void => void transport.close()
  signal.addEventListener('abort', giveUp, { once: true })
  try {
    signal.throwIfAborted()
    await client.connect(transport, { timeout: limits.answerMs })
  } catch (error) {
    throw failed(error, signal)
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
  transport.keepListed()
  const { tools } = client.getServerCapabilities() ?? {}
  const over = new AbortController()
  client.setNotificationHandler('notifications/tools/list_changed', onChanged)
  if (tools?.listChanged === true && client.getProtocolEra() === 'modern') {
    // Only a hint: the list is read at each run anyway.
    client.listen({ toolsListChanged: true }, { signal: over.signal, timeout: limits.answerMs }).catch(() => undefined)
  }

  return {
    instructions: plainText(client.getInstructions() ?? '', instructionCharacters),
    list: async (given) => {
      if (tools === undefined) return []
      const found: unknown[] = []
      let cursor: string | undefined
      try {
        for (let page = 0; page < mostPages && found.length <= mostTools; page++) {
          const params = cursor === undefined ? {} : { cursor }
          const { nextCursor } = await client.request({ method: 'tools/list', params }, Page, {
            signal: given,
            timeout: limits.answerMs,
          })
          found.push(...transport.takeListed())
          if (nextCursor === undefined || nextCursor === cursor) break
          cursor = nextCursor
        }
      } catch (error) {
        throw failed(error, given)
      }
      return found
    },
    call: async ({ remote, inputSchema }, args, { signal: given, progress }) => {
      try {
        return await client.callTool(
          { name: remote, arguments: { ...args } },
          {
            signal: given,
            timeout: limits.silentMs,
            maxTotalTimeout: limits.callMs,
            resetTimeoutOnProgress: true,
            onprogress: (note) => progress(progressText(note)),
            // How its arguments travel, and no schema of the result: what was done is told, whatever it looks like.
            toolDefinition: { name: remote, inputSchema },
          },
        )
      } catch (error) {
        throw failed(error, given)
      }
    },
    close: async () => {
      over.abort()
      const timer = setTimeout(giveUp, goodbyeMs)
      try {
        await transport.terminateSession()
      } catch {
        // Nobody is told goodbye who does not listen.
      } finally {
        clearTimeout(timer)
        await client.close()
      }
    },
  }
}

function progressText(note: {
  readonly progress: number
  readonly total?: number | undefined
  readonly message?: string | undefined
}): string {
  const count = note.total === undefined ? `${note.progress}` : `${note.progress} of ${note.total}`
  return note.message === undefined || note.message.trim() === '' ? count : note.message
}

/** The SDK's transport, with two things put right. */
class WatchedTransport extends StreamableHTTPClientTransport {
  readonly #lists = new Set<number>()
  #listed: readonly unknown[] = []

  /** Takes the tools out of the answers to come: the SDK would refuse all of them for one that is wrong. */
  keepListed(): void {
    const deliver = this.onmessage
    const onmessage = (message: JSONRPCMessage): void => {
      const isList = 'result' in message && typeof message.id === 'number' && this.#lists.delete(message.id)
      const read = v.safeParse(ListResult, isList ? message.result : undefined)
      if (!isList || !read.success) return deliver?.(message)
      this.#listed = read.output.tools
      return deliver?.({ ...message, result: { ...read.output, tools: [] } })
    }
    Object.assign(this, { onmessage })
  }

  takeListed(): readonly unknown[] {
    const listed = this.#listed
    this.#listed = []
    return listed
  }

  /** Answers a request in the server's place when the stream of its answer ended without one: nobody else will. */
  override async send(
    message: JSONRPCMessage | JSONRPCMessage[],
    options: Parameters<StreamableHTTPClientTransport['send']>[1] = {},
  ): Promise<void> {
    const id = !Array.isArray(message) && 'method' in message && 'id' in message ? message.id : undefined
    if (Array.isArray(message) || typeof id !== 'number') return super.send(message, options)
    if ('method' in message && message.method === 'tools/list') this.#lists.add(id)
    const onRequestStreamEnd = (): void => {
      options.onRequestStreamEnd?.()
      this.onmessage?.({ jsonrpc: '2.0', id, error: { code: lostCode, message: 'the stream ended' } })
    }
    return super.send(message, { ...options, onRequestStreamEnd })
  }
}
