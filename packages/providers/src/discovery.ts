import { messageOf } from '@reve/base'
import * as v from 'valibot'
import { fetchThrough } from './connection.ts'
import { below, protocols, withoutKeys } from './http-model.ts'
import { get, readCapped, type TransportOptions } from './transport.ts'
import type { HttpModelConfig } from './wire.ts'

/** A model that a server offers; it can be used once `models.yml` lists it. */
export type DiscoveredModel = {
  /** `provider/model-id`. */
  readonly reference: string
  /** Tokens, when the server says so. */
  readonly contextWindow?: number
  /** Whether it can think, when the server says so. */
  readonly reasoning?: boolean
}

/** What the providers of a file offer. */
export type Discovery = {
  /** By reference. Those of a provider that cannot be asked now are as they were when it could. */
  readonly models: readonly DiscoveredModel[]
  /** Why a provider could not be asked, by its name. */
  readonly failures: Readonly<Record<string, string>>
}

/** Where an answer is kept; nothing that it throws is hidden. */
export type DiscoveryCache = {
  /** What was written last; undefined when nothing was. */
  read(): Promise<string | undefined>
  write(text: string): Promise<void>
}

/** How providers are asked. */
export type DiscoverOptions = {
  readonly cache?: DiscoveryCache
  /** A kept answer that is older is asked for again. Default: a day. */
  readonly maxAgeMs?: number
  /** For each provider. Default 10,000. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
}

/** A provider that can be asked: its variables are set. */
export type Endpoint = Pick<
  HttpModelConfig,
  'api' | 'provider' | 'baseUrl' | 'apiKey' | 'headers' | 'secrets' | 'connection'
>

const DAY_MS = 86_400_000
const MOST_BYTES = 8 << 20
const MOST_MODELS = 10_000
const SHOWN = 120

const number = v.nullish(v.number())
const Row = v.object({
  id: v.pipe(v.string(), v.nonEmpty(), v.maxLength(300)),
  context_length: number,
  context_window: number,
  max_model_len: number,
  max_context_length: number,
  max_input_tokens: number,
  meta: v.nullish(v.object({ n_ctx_train: number })),
  supported_parameters: v.nullish(v.array(v.string())),
})
const List = v.object({ data: v.array(v.unknown()) })

const Kept = v.object({
  version: v.literal(1),
  fetchedAtMs: v.number(),
  models: v.array(
    v.object({
      reference: v.string(),
      contextWindow: v.exactOptional(v.number()),
      reasoning: v.exactOptional(v.boolean()),
    }),
  ),
  failures: v.record(v.string(), v.string()),
})

/** Asks each provider for its models, all at once; what one of them does is no failure of the others. */
export async function discover(
  endpoints: readonly Endpoint[],
  transport: TransportOptions,
  options: DiscoverOptions,
): Promise<Discovery> {
  const now = (transport.now ?? Date.now)()
  const kept = parseKept(await options.cache?.read())
  const age = kept === undefined ? Infinity : now - kept.fetchedAtMs
  // A clock that was turned back makes no answer of the future last.
  const isFresh = age >= 0 && age < (options.maxAgeMs ?? DAY_MS)
  const known = new Set(kept?.models.map(({ reference }) => providerOf(reference)))
  const isWhole = endpoints.every(({ provider }) => known.has(provider) || kept?.failures[provider] !== undefined)
  if (kept !== undefined && isFresh && isWhole) return { models: kept.models, failures: kept.failures }
  const answers = await Promise.all(endpoints.map((endpoint) => ask(endpoint, transport, options)))
  options.signal?.throwIfAborted()
  const failures = Object.fromEntries(
    answers.flatMap((answer) => ('failure' in answer ? [[answer.provider, answer.failure] as const] : [])),
  )
  const models = answers.flatMap((answer) =>
    'models' in answer
      ? answer.models
      : (kept?.models ?? []).filter(({ reference }) => providerOf(reference) === answer.provider),
  )
  const found: Discovery = {
    models: [...new Map(models.map((model) => [model.reference, model])).values()].toSorted((a, b) =>
      a.reference < b.reference ? -1 : 1,
    ),
    failures,
  }
  await options.cache?.write(`${JSON.stringify({ version: 1, fetchedAtMs: now, ...found })}\n`)
  return found
}

const providerOf = (reference: string): string => reference.slice(0, reference.indexOf('/'))

/** A cache that is damaged, or of another version, is none. */
function parseKept(text: string | undefined): v.InferOutput<typeof Kept> | undefined {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Kept), text)
  return parsed.success ? parsed.output : undefined
}

type Answer = { readonly provider: string } & (
  | { readonly models: readonly DiscoveredModel[] }
  | { readonly failure: string }
)

async function ask(endpoint: Endpoint, transport: TransportOptions, options: DiscoverOptions): Promise<Answer> {
  const { provider, api, apiKey } = endpoint
  const protocol = protocols[api]
  const url = below(endpoint.baseUrl, protocol.list)
  if (api === 'anthropic-messages') url.searchParams.set('limit', '1000')
  const { proxies } = transport
  const through = fetchThrough(url, { ...endpoint.connection, ...(proxies !== undefined && { proxies }) })
  const ms = options.timeoutMs ?? 10_000
  const late = AbortSignal.timeout(ms)
  const signal = options.signal === undefined ? late : AbortSignal.any([late, options.signal])
  const secrets = [...(apiKey === undefined ? [] : [apiKey]), ...(endpoint.secrets ?? [])]
  const failed = (message: string): Answer => ({
    provider,
    failure: withoutKeys({ message: message.slice(0, 1000) }, secrets).message,
  })
  const headers = { ...protocol.headers(apiKey), ...endpoint.headers }
  const reply = await get(url.href, headers, signal, { ...(through !== undefined && { fetch: through }), ...transport })
  const shown = `${url.origin}${url.pathname}`
  if (reply.type === 'timeout' || reply.type === 'aborted')
    return failed(`${shown} did not answer within ${ms / 1000} s`)
  if (reply.type === 'dropped') return failed(`cannot reach ${shown}: ${reply.reason}`)
  const body = await readCapped(reply.body, MOST_BYTES)
  const start = body.trim().split('\n')[0]?.slice(0, SHOWN).toWellFormed() ?? ''
  if (reply.status < 200 || reply.status >= 300)
    return failed(`HTTP ${reply.status}${start === '' ? '' : `: ${start}`}`)
  try {
    const { data } = v.parse(List, JSON.parse(body))
    return { provider, models: data.slice(0, MOST_MODELS).flatMap((row) => modelOf(provider, row)) }
  } catch (error) {
    return failed(`${shown} gave no list of models (${messageOf(error).slice(0, SHOWN)})`)
  }
}

/** A row that is none of ours is left out; `~` marks another name for a model. */
function modelOf(provider: string, row: unknown): readonly DiscoveredModel[] {
  const parsed = v.safeParse(Row, row)
  if (!parsed.success || parsed.output.id.startsWith('~') || /[\p{Cc}\s]/u.test(parsed.output.id)) return []
  const { id, meta, supported_parameters: parameters, ...sizes } = parsed.output
  const contextWindow =
    sizes.context_length ??
    sizes.context_window ??
    sizes.max_model_len ??
    sizes.max_context_length ??
    sizes.max_input_tokens ??
    meta?.n_ctx_train ??
    undefined
  return [
    {
      reference: `${provider}/${id}`,
      ...(contextWindow !== undefined && contextWindow > 0 && { contextWindow }),
      ...(parameters && { reasoning: parameters.some((name) => /^reasoning(_effort)?$/.test(name)) }),
    },
  ]
}
