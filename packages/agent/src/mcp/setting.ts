import * as v from 'valibot'

/** `mcp` of `agent {}`: servers whose tools the agent has, by the name that their tools begin with. */
const ServerName = v.pipe(
  v.string('must be a name'),
  v.regex(
    /^(?=.{1,24}$)[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*$/,
    'is no name of a server: 1 to 24 letters, digits, - and single _, the first one a letter',
  ),
)

const Url = v.pipe(
  v.string('must be a URL such as "https://mcp.example.com/mcp"'),
  v.check(
    (text) => ['http:', 'https:'].includes(URL.parse(text)?.protocol ?? ''),
    'must be an http or https URL such as "https://mcp.example.com/mcp"; programs are not started',
  ),
  v.check(
    (text) => (URL.parse(text)?.username ?? '') === '' && (URL.parse(text)?.password ?? '') === '',
    'must hold no user or password; use headers = { Authorization = "Bearer $MY_TOKEN" }',
  ),
)

const Headers = v.pipe(
  v.custom<Readonly<Record<string, unknown>>>(
    (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
    'must be a table like { Authorization = "Bearer $MY_TOKEN" }',
  ),
  v.record(v.string(), v.string('must be text')),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return
    for (const [key, value] of Object.entries(dataset.value)) {
      const message = headerProblem(key, value)
      if (message !== undefined)
        addIssue({ message, path: [{ type: 'object', origin: 'value', input: dataset.value, key, value: null }] })
    }
  }),
)

/** The schema of `mcp`. No message repeats a value: a secret may stand there. */
export const McpTable = v.record(
  ServerName,
  v.strictObject({ url: Url, headers: v.optional(Headers) }, ({ expected }) =>
    (expected ?? '').startsWith('"')
      ? 'is missing'
      : 'must be a table like { url = "https://mcp.example.com/mcp", headers = { Authorization = "Bearer $MY_TOKEN" } }',
  ),
  'must be a table of servers, like { docs = { url = "https://mcp.example.com/mcp" } }',
)

/** What the agent's configuration says of MCP servers; undefined: nothing. */
export type McpSetting = v.InferOutput<typeof McpTable> | undefined

/** Keys of the table at a path of `agent {}` when that table is a server's. */
export const mcpKeysAt = (path: string): readonly string[] | undefined =>
  /^mcp\/[^/]+$/.test(path) ? ['url', 'headers'] : undefined

/** The names of the servers, in the order in which their tools are offered. */
export const mcpNames = (setting: McpSetting): readonly string[] => Object.keys(setting ?? {}).toSorted()

/** Looks a variable of the user's environment up. */
export type Env = (name: string) => string | undefined

/** Values that the headers take from the environment: they must stand in no file, event or message. */
export function mcpSecrets(setting: McpSetting, env: Env): readonly string[] {
  return Object.values(setting ?? {}).flatMap(({ headers = {} }) =>
    Object.values(headers)
      .flatMap(variablesOf)
      .map((name) => env(name)?.trim() ?? '')
      .filter((value) => value !== ''),
  )
}

/** Where a server is and what it is sent, or why it cannot be asked. */
export type Endpoint =
  | { readonly type: 'endpoint'; readonly url: URL; readonly headers: Readonly<Record<string, string>> }
  | { readonly type: 'problem'; readonly text: string }

/** Puts the values of the environment into a server's headers. */
export function endpointOf(server: NonNullable<McpSetting>[string], env: Env): Endpoint {
  const headers: Record<string, string> = {}
  for (const [name, template] of Object.entries(server.headers ?? {})) {
    const missing = variablesOf(template).find((variable) => (env(variable)?.trim() ?? '') === '')
    if (missing !== undefined)
      return { type: 'problem', text: `its header ${name} refers to $${missing}, which is not set` }
    // A value out of a file often brings the line's end along.
    const value = template.replaceAll(reference, (whole, bare, braced) =>
      whole === '$$' ? '$' : (env(bare ?? braced)?.trim() ?? ''),
    )
    // The platform's own refusal would repeat the value.
    if (/[^\t\x20-\x7e]/.test(value))
      return { type: 'problem', text: `its header ${name} gets characters from the environment that no header takes` }
    headers[name] = value
  }
  return { type: 'endpoint', url: new URL(server.url), headers }
}

const reference = /\$\$|\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g

const variablesOf = (template: string): readonly string[] =>
  [...template.matchAll(reference)].flatMap(([, bare, braced]) => bare ?? braced ?? [])

/** Headers that carry who asks: their values are secrets, so that no literal may stand in a file. */
const credentials = /^(authorization|proxy-authorization|cookie|.*(api[-_]?key|token|secret).*)$/i
/** What belongs to the connection, the request or the protocol. */
const ours =
  /^(host|content-length|content-type|transfer-encoding|connection|accept|accept-encoding|expect|te|upgrade|last-event-id|mcp-.*)$/i

function headerProblem(name: string, template: string): string | undefined {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) return 'is no name of a header'
  if (ours.test(name)) return 'is set by reve itself'
  if (/[^\t\x20-\x7e]/.test(template)) return 'has characters that no header takes'
  if (credentials.test(name) && variablesOf(template).length === 0)
    return 'must refer to a variable such as $MY_TOKEN; a secret itself does not belong here'
  return undefined
}
