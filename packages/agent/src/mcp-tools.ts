import { redactSecrets, sanitiseLine } from '@reve/base'
import type { Tool } from '@reve/harness'
import type { ServiceEffects } from './effects.ts'
import type { Fetch } from './mcp/bounded-fetch.ts'
import type { McpLimits } from './mcp/connection.ts'
import { createServer, type McpServer } from './mcp/server.ts'
import { endpointOf, type Env, mcpNames, mcpSecrets, type McpSetting } from './mcp/setting.ts'

/** Options of `createMcpTools`. */
export type McpOptions = {
  /** What the configuration says now; read at each refresh. */
  readonly setting: () => McpSetting
  readonly env: Env
  readonly after: ServiceEffects['after']
  /** Keeps a long result's beginning and end, and the whole of it where the model can read on. */
  readonly shorten: (text: string, signal: AbortSignal) => Promise<string>
  /** How a server is reached where the platform's own way will not do: through a proxy. */
  readonly fetchFor?: (url: URL) => Fetch | undefined
  /** The version that servers are told (default `0`). */
  readonly version?: string
  readonly limits?: Partial<McpLimits & { readonly patienceMs: number; readonly shortPatienceMs: number }>
}

/** How it stands with one server, for people. */
export type McpStatus = {
  readonly name: string
  readonly url: string
  readonly state: 'untried' | 'up' | 'down'
  readonly tools: number
  /** Why it is down, else what is wrong with single tools. */
  readonly problems: readonly string[]
}

/** The MCP servers of an agent, and their tools. Nothing is asked before the first refresh. */
export interface McpTools extends AsyncDisposable {
  /**
   * Asks each server for its tools, before a run: connects those that are not, follows the configuration. A server that does not answer
   * soon is waited for no longer; its tools are there in a later run.
   *
   * @param options.signal whoever asks waits no longer.
   * @returns what the user should know and was not told yet, a sentence each.
   */
  refresh(options?: { readonly signal?: AbortSignal }): Promise<readonly string[]>
  /** The tools of the servers that answered last, by name. Those whose name is `taken` are left out. */
  tools(taken?: ReadonlySet<string>): readonly Tool[]
  /** What the servers that are up say of themselves to a model; texts of strangers. */
  instructions(): readonly { readonly server: string; readonly text: string }[]
  status(): readonly McpStatus[]
  close(): Promise<void>
}

const defaults = {
  answerMs: 15_000,
  silentMs: 240_000,
  callMs: 3_600_000,
  // A run waits that long for a server; for one that did not answer before, less.
  patienceMs: 10_000,
  shortPatienceMs: 1000,
}

/** The tools of the MCP servers that an agent's configuration names. */
export function createMcpTools(options: McpOptions): McpTools {
  const { setting, env, after } = options
  const limits = { ...defaults, ...options.limits }
  const servers = new Map<string, Known>()
  /** What was told of each server last; nothing while all was well. */
  const told = new Map<string, string>()
  let refreshing: Promise<readonly string[]> | undefined
  // Whatever came first: a provider's cache holds only for the same bytes.
  const inOrder = () => [...servers].toSorted(([a], [b]) => (a < b ? -1 : 1))

  const follow = async (now: McpSetting): Promise<void> => {
    const gone: Promise<void>[] = []
    for (const [name, { key, server }] of servers) {
      if (now?.[name] !== undefined && keyOf(now[name]) === key) continue
      servers.delete(name)
      gone.push(server.close())
    }
    for (const name of mcpNames(now)) {
      const given = now?.[name]
      if (given === undefined || servers.has(name)) continue
      const endpoint = endpointOf(given, env)
      const through = endpoint.type === 'endpoint' ? options.fetchFor?.(endpoint.url) : undefined
      const server = createServer({
        name,
        endpoint,
        limits,
        fetch: through ?? ((url, init) => fetch(url, init)),
        version: options.version ?? '0',
        shorten: options.shorten,
      })
      servers.set(name, { key: keyOf(given), url: given.url, server })
    }
    await Promise.all(gone)
  }

  const lookAt = async (server: McpServer, signal?: AbortSignal): Promise<boolean> => {
    const wait = server.state().type === 'down' ? limits.shortPatienceMs : limits.patienceMs
    const done = new AbortController()
    const given = signal === undefined ? done.signal : AbortSignal.any([done.signal, signal])
    try {
      return await Promise.race([server.refresh().then(() => true), after(wait, given).then(() => false)])
    } finally {
      done.abort()
    }
  }

  const refresh = async (signal?: AbortSignal): Promise<readonly string[]> => {
    const now = setting()
    await follow(now)
    const secrets = mcpSecrets(now, env)
    const notes = await Promise.all(
      inOrder().map(async ([name, { server }]) => newsOf(name, problemsOf(server, await lookAt(server, signal)))),
    )
    for (const name of told.keys()) if (!servers.has(name)) told.delete(name)
    return notes.flat().map((note) => sanitiseLine(redactSecrets(note, secrets), 600))
  }

  const newsOf = (name: string, problem: string | undefined): readonly string[] => {
    const before = told.get(name)
    if (problem === before) return []
    if (problem === undefined) {
      told.delete(name)
      return [`the MCP server ${name} is as it should be again`]
    }
    told.set(name, problem)
    return [`the MCP server ${name}: ${problem}`]
  }

  const close = async (): Promise<void> => {
    await Promise.all([...servers.values()].map(({ server }) => server.close()))
    servers.clear()
  }

  return {
    refresh: async ({ signal } = {}) => {
      // What is new is told to the first who asks.
      if (refreshing !== undefined) return refreshing.then(() => [])
      refreshing = refresh(signal).finally(() => (refreshing = undefined))
      return refreshing
    },
    tools: (taken = new Set()) =>
      inOrder().flatMap(([, { server }]) =>
        server
          .tools()
          .filter(({ name }) => !taken.has(name))
          .map((tool): Tool => {
            const { name, description, parameters, replay } = tool
            const run: Tool['run'] = (args, context) => server.call(tool, args, context)
            return { name, description, parameters, replay, run }
          }),
      ),
    instructions: () =>
      inOrder().flatMap(([name, { server }]) => {
        const text = server.instructions()
        return text === '' ? [] : [{ server: name, text }]
      }),
    status: () =>
      inOrder().map(([name, { url, server }]) => {
        const state = server.state()
        const problems = state.type === 'down' ? [state.problem] : state.type === 'up' ? state.problems : []
        return { name, url, state: state.type, tools: server.tools().length, problems }
      }),
    close,
    [Symbol.asyncDispose]: close,
  }
}

type Known = { readonly key: string; readonly url: string; readonly server: McpServer }

const keyOf = (setting: NonNullable<McpSetting>[string]): string => JSON.stringify(setting)

/** What is wrong with a server, if anything. */
function problemsOf(server: McpServer, hasAnswered: boolean): string | undefined {
  const state = server.state()
  switch (state.type) {
    case 'down':
      return `${state.problem}; this run goes without its tools, the next one tries again`
    case 'up':
      return state.problems.length === 0 ? undefined : state.problems.join('; ')
    case 'untried':
      return hasAnswered ? undefined : 'it has not answered yet; this run goes without its tools'
    default:
      return state satisfies never
  }
}
