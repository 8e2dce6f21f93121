import { isReveError } from '@reve/base'
import type { ToolContext, ToolOutput } from '@reve/harness'
import type { JsonObject } from '@reve/providers/model'
import { outputProgress, systemClock } from '../output-progress.ts'
import type { Fetch } from './bounded-fetch.ts'
import type { Connection, McpLimits } from './connection.ts'
import { toolOutput } from './content.ts'
import { McpError } from './errors.ts'
import { type ListedTool, listedTools } from './listed-tool.ts'
import type { Endpoint } from './setting.ts'

/** How it stands with a server. */
export type ServerState =
  | { readonly type: 'untried' }
  /** Since the last look at it; `problems` are of single tools. */
  | { readonly type: 'up'; readonly problems: readonly string[] }
  | { readonly type: 'down'; readonly problem: string }

/** One MCP server of an agent. */
export type McpServer = {
  readonly state: () => ServerState
  /** The tools of the last good look; none while it is down. */
  readonly tools: () => readonly ListedTool[]
  readonly instructions: () => string
  /** Connects where there is no connection, and reads the list of tools; several at once are one. Does not reject. */
  readonly refresh: () => Promise<void>
  readonly call: (tool: ListedTool, args: JsonObject, context: ToolContext) => Promise<ToolOutput>
  readonly close: () => Promise<void>
}

export type ServerParts = {
  readonly name: string
  readonly endpoint: Endpoint
  readonly fetch: Fetch
  readonly version: string
  readonly limits: McpLimits
  readonly shorten: (text: string, signal: AbortSignal) => Promise<string>
}

/** A server that is asked at the first refresh, not before. */
export function createServer({ name, endpoint, fetch, version, limits, shorten }: ServerParts): McpServer {
  const over = new AbortController()
  let state: ServerState = { type: 'untried' }
  let listed: readonly ListedTool[] = []
  let connection: Connection | undefined
  let connecting: Promise<Connection> | undefined
  let refreshing: Promise<void> | undefined
  let hasChanged = false

  const open = async (): Promise<Connection> => {
    if (endpoint.type === 'problem') throw new McpError('refused', endpoint.text)
    // Of weight, and an agent without such servers has no use for it.
    const { connect } = await import('./connection.ts')
    const { url, headers } = endpoint
    const onChanged = (): void => {
      hasChanged = true
    }
    const opened = await connect({ url, headers, fetch, version, limits, onChanged, signal: over.signal })
    connection = opened
    return opened
  }

  /** The connection that there is, else a new one; `instead` of one that is of no use any more. */
  const connected = (instead?: Connection): Promise<Connection> => {
    if (instead !== undefined && connection === instead) {
      connection = undefined
      instead.close().catch(() => undefined)
    }
    if (connection !== undefined) return Promise.resolve(connection)
    connecting ??= open().finally(() => (connecting = undefined))
    return connecting
  }

  const look = async (): Promise<readonly unknown[]> => {
    const known = connection
    try {
      return await (await connected()).list(over.signal)
    } catch (error) {
      // Whatever was wrong with an old connection, a new one shows whether the server is there.
      if (known === undefined || over.signal.aborted) throw error
      return (await connected(known)).list(over.signal)
    }
  }

  const refresh = async (): Promise<void> => {
    try {
      hasChanged = false
      const { tools, problems } = listedTools(name, await look())
      listed = tools
      state = { type: 'up', problems }
    } catch (error) {
      if (!isReveError(error)) throw error
      listed = []
      state = { type: 'down', problem: error.message }
    }
  }

  const ask = async (tool: ListedTool, args: JsonObject, context: Asking): Promise<unknown> => {
    const used = await connected()
    try {
      return await used.call(tool, args, context)
    } catch (error) {
      if (!(error instanceof McpError) || error.code !== 'expired') throw error
      return (await connected(used)).call(tool, args, context)
    }
  }

  return {
    state: () => state,
    tools: () => listed,
    instructions: () => (state.type === 'up' ? (connection?.instructions ?? '') : ''),
    refresh: () => {
      refreshing ??= refresh().finally(() => (refreshing = undefined))
      return refreshing
    },
    call: async (tool, args, { signal, progress }) => {
      const shown = outputProgress(progress, systemClock)
      try {
        const given = AbortSignal.any([signal, over.signal])
        const show = (text: string): void => shown.add('stdout', new TextEncoder().encode(`${text}\n`))
        const result = await ask(tool, args, { signal: given, progress: show })
        const output = await toolOutput(result, (text) => shorten(text, signal))
        return hasChanged
          ? withNote(output, `(The tools of ${name} have changed; what is new can be used in the next run.)`)
          : output
      } catch (error) {
        if (!(error instanceof McpError) || signal.aborted) throw error
        return { content: failureText(name, error), isError: true }
      } finally {
        shown.end()
      }
    },
    close: async () => {
      over.abort()
      await Promise.allSettled([connecting, refreshing])
      await connection?.close()
      connection = undefined
    },
  }
}

type Asking = { readonly signal: AbortSignal; readonly progress: (text: string) => void }

/** What the model is told: above all whether the call may have been carried out. */
function failureText(name: string, { code, message }: McpError): string {
  const said = `The MCP server ${name} did not do it: ${message}.`
  switch (code) {
    case 'unreachable':
    case 'refused':
    case 'expired':
    case 'not_mcp':
    case 'error_answer':
      return said
    case 'timeout':
    case 'lost':
    case 'bad_answer':
    case 'aborted':
      return `The call of the MCP server ${name} has no result: ${message}. Whether it was carried out is not known: look before you do it again.`
    default:
      return code satisfies never
  }
}

const withNote = (output: ToolOutput, note: string): ToolOutput => ({
  ...output,
  content: [
    ...(typeof output.content === 'string' ? [{ type: 'text', text: output.content } as const] : output.content),
    { type: 'text', text: note },
  ],
})
