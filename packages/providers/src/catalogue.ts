import { nearest, ReveError } from '@reve/base'
import { discover, type DiscoverOptions, type Discovery, type Endpoint } from './discovery.ts'
import { headerPieces } from './header-values.ts'
import { createHttpModel } from './http-model.ts'
import type { Model, Price } from './model.ts'
import type { Provider } from './models-schema.ts'
import { isBaseUrl, variableOf } from './models-schema.ts'
import { createScriptedModel } from './scripted.ts'
import type { TransportOptions } from './transport.ts'
import type { Api } from './wire.ts'

/** Reads one variable of the environment. */
export type Environment = (name: string) => string | undefined

/**
 * Why a model cannot be had.
 * - `unknown_model`: not in the file; the message lists what is.
 * - `bad_provider`: its provider is in the file, but wrong there.
 * - `bad_variable`: a variable that the provider refers to is unset, empty or of no use.
 */
export class ModelsError extends ReveError<'unknown_model' | 'bad_provider' | 'bad_variable'> {
  override readonly name = 'ModelsError'
}

/** One configured model. */
export type ModelInfo = {
  /** `provider/model-id`. */
  readonly id: string
  readonly api: Api | 'scripted'
  readonly reasoning: boolean
  /** Tokens. */
  readonly contextWindow: number
  /** Tokens of one answer. */
  readonly maxTokens: number
  readonly price?: Price
}

/** What is wrong with one provider; its models are left out, the others' are not. */
export type ProviderProblem = { readonly provider: string; readonly message: string }

/** The models of one `models.yml`. */
export type ModelCatalogue = {
  /** By name of the provider, then in the file's order. */
  readonly models: readonly ModelInfo[]
  readonly problems: readonly ProviderProblem[]
  /**
   * The model of a reference: `provider/model-id`, split at the first slash. A provider alone (`openai`, `openai/`) is its
   * first model; an id alone is that of the first provider that has it.
   *
   * @throws {ModelsError} for an unknown model, a bad provider, and a variable that is unset or empty. Only the variables of
   *   the model's own provider are looked at.
   */
  resolve(reference: string): Model
  /**
   * Asks the providers whose variables are set what models they have, for completion. A provider that cannot be asked is in
   * `failures`; rejects only for an aborted signal and for what the cache throws.
   */
  discover(options?: DiscoverOptions): Promise<Discovery>
}

type Entry = {
  readonly endpoint?: () => Endpoint
  readonly info: ModelInfo
  readonly provider: string
  readonly modelId: string
  readonly create: () => Model
}

/** @param providers those without problems. */
export function createCatalogue(
  file: string,
  providers: ReadonlyMap<string, Provider>,
  problems: readonly ProviderProblem[],
  env: Environment,
  transport: TransportOptions,
): ModelCatalogue {
  const names = [...providers.keys()].toSorted((a, b) => (a < b ? -1 : 1))
  const entries = names.flatMap((name) => {
    const provider = providers.get(name)
    return provider === undefined ? [] : entriesOf(name, provider, file, env, transport)
  })
  return {
    models: entries.map(({ info }) => info),
    problems,
    resolve(reference) {
      const entry = find(entries, reference)
      if (entry !== undefined) return entry.create()
      const problem = problems.find(({ provider }) => provider === splitReference(reference).provider)
      if (problem !== undefined) {
        throw new ModelsError(
          'bad_provider',
          `model ${quoted(reference)} cannot be used: its provider is wrong.\n${problem.message}`,
        )
      }
      throw unknownModel(file, reference, entries)
    },
    discover: (options = {}) => discover(endpointsOf(entries), transport, options),
  }
}

function entriesOf(
  name: string,
  provider: Provider,
  file: string,
  env: Environment,
  transport: TransportOptions,
): readonly Entry[] {
  const infoOf = (model: Provider['models'][number]): ModelInfo => {
    const { reasoning, contextWindow, maxTokens, price } = model
    return {
      id: `${name}/${model.id}`,
      api: provider.api,
      reasoning,
      contextWindow,
      maxTokens,
      ...(price && { price }),
    }
  }
  if (!('baseUrl' in provider)) {
    return provider.models.map((model) => {
      const info = infoOf(model)
      // One instance: it counts the attempts that its script lets fail.
      const scripted = createScriptedModel({ ...info, turns: model.turns ?? model.script ?? [] })
      return { info, provider: name, modelId: model.id, create: () => scripted }
    })
  }
  const { api } = provider
  // The schema sends every scripted provider the other way.
  if (api === 'scripted') return []
  return provider.models.map((model) => {
    const info = infoOf(model)
    const endpoint = (): Endpoint => {
      const baseUrl = valueOf(provider.baseUrl, `${file}: provider ${name}: baseUrl`, env)
      if (!isBaseUrl(baseUrl)) {
        throw new ModelsError(
          'bad_variable',
          `${file}: provider ${name}: ${provider.baseUrl} must hold an http or https URL without user and password`,
        )
      }
      const key = provider.apiKey
      const headers = headersOf(provider.headers ?? {}, `${file}: provider ${name}: headers`, env)
      return {
        api,
        provider: name,
        baseUrl,
        ...(key !== undefined && { apiKey: keyOf(key, `${file}: provider ${name}: apiKey`, env) }),
        ...headers,
        ...(provider.ca !== undefined && { connection: { ca: provider.ca } }),
      }
    }
    const create = (): Model =>
      createHttpModel(
        {
          ...info,
          ...endpoint(),
          api,
          modelId: model.id,
          ...(provider.apiKey !== undefined && { apiKeyName: provider.apiKey.slice(1) }),
          ...(provider.compat && { compat: provider.compat }),
          ...(model.thinking && { thinking: model.thinking }),
        },
        transport,
      )
    return { info, provider: name, modelId: model.id, create, endpoint }
  })
}

/** One for each provider that can be asked now. */
function endpointsOf(entries: readonly Entry[]): readonly Endpoint[] {
  const first = new Map<string, Entry>()
  for (const entry of entries) if (!first.has(entry.provider)) first.set(entry.provider, entry)
  return [...first.values()].flatMap(({ endpoint }) => {
    try {
      return endpoint === undefined ? [] : [endpoint()]
    } catch (error) {
      // Who has no key for a provider does not want to complete its models.
      if (error instanceof ModelsError) return []
      throw error
    }
  })
}

function splitReference(reference: string): { readonly provider: string; readonly modelId: string } {
  const slash = reference.indexOf('/')
  return slash < 0
    ? { provider: reference, modelId: '' }
    : { provider: reference.slice(0, slash), modelId: reference.slice(slash + 1) }
}

function find(entries: readonly Entry[], reference: string): Entry | undefined {
  const { provider, modelId } = splitReference(reference)
  const own = entries.filter((entry) => entry.provider === provider)
  const named = modelId === '' ? own[0] : own.find((entry) => entry.modelId === modelId)
  return named ?? (reference.includes('/') ? undefined : entries.find((entry) => entry.modelId === reference))
}

const mostListed = 40

function unknownModel(file: string, reference: string, entries: readonly Entry[]): ModelsError {
  const ids = entries.map(({ info }) => info.id)
  if (ids.length === 0)
    return new ModelsError('unknown_model', `no model ${quoted(reference)}: ${file} has no usable model; add one`)
  const near = nearest(reference, ids) ?? ids.find((id) => id.endsWith(`/${reference}`))
  const listed = ids.slice(0, mostListed).join(', ') + (ids.length > mostListed ? `, … (${ids.length} in all)` : '')
  const hint = near === undefined ? '' : ` (did you mean "${near}"?)`
  return new ModelsError('unknown_model', `no model ${quoted(reference)} in ${file}${hint}; known are ${listed}`)
}

function valueOf(value: string, where: string, env: Environment): string {
  const variable = variableOf(value)
  if (variable === undefined) return value
  const found = env(variable)
  if (found === undefined)
    throw new ModelsError('bad_variable', `${where} refers to $${variable}, which is not set; set it`)
  // A value out of a file often brings the line's end along.
  if (found.trim() === '')
    throw new ModelsError('bad_variable', `${where} refers to $${variable}, which is empty; set it`)
  return found.trim()
}

/** Headers with the values of their variables, which are secrets. */
function headersOf(
  given: Readonly<Record<string, string>>,
  where: string,
  env: Environment,
): { readonly headers: Readonly<Record<string, string>>; readonly secrets: readonly string[] } {
  const secrets: string[] = []
  const headers = Object.entries(given).map(([name, value]): [string, string] => {
    const text = headerPieces(value).map((piece) => {
      if ('text' in piece) return piece.text
      const found = keyOf(`$${piece.variable}`, `${where}: ${name}`, env)
      secrets.push(found)
      return found
    })
    return [name, text.join('')]
  })
  return { headers: Object.fromEntries(headers), secrets }
}

function keyOf(reference: string, where: string, env: Environment): string {
  const key = valueOf(reference, where, env)
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new ModelsError(
      'bad_variable',
      `${where} refers to ${reference}, which holds characters that no key has (spaces, line ends)`,
    )
  }
  return key
}

function quoted(reference: string): string {
  return JSON.stringify(reference.slice(0, 200))
}
