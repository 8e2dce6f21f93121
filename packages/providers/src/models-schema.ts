import * as v from 'valibot'
import { turnsSchema } from './script-file.ts'
import type { ScriptedTurn } from './scripted.ts'
import { flag, listOf, oneOf, strict, text, whole } from './strict.ts'
import { headerProblem } from './header-values.ts'
import { levels } from './thinking.ts'
import { apis } from './wire.ts'

/** What `api` may say. */
const apiNames = [...apis, 'scripted'] as const

const variable = /^\$[A-Za-z_][A-Za-z0-9_]*$/
const noLiteral = 'must be a $ENV_VAR reference; secrets do not belong in this file'

/** Whether a base URL can be used: http or https, and no user in it, for that would be a secret in the file and in messages. */
export function isBaseUrl(url: string): boolean {
  if (!URL.canParse(url)) return false
  const { protocol, username, password } = new URL(url)
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === ''
}

/** The variable that `value` refers to, if it is a reference. */
export function variableOf(value: string): string | undefined {
  return variable.test(value) ? value.slice(1) : undefined
}

const dollars = v.pipe(
  v.number('must be US dollars per million tokens'),
  v.finite('must be a finite number'),
  v.minValue(0, 'must not be negative'),
)

const price = v.pipe(
  strict(
    { input: dollars, output: dollars, cacheRead: v.exactOptional(dollars), cacheWrite: v.exactOptional(dollars) },
    'prices in US dollars per million tokens',
  ),
  // What has no price of its own costs what a fresh token costs.
  v.transform((given) => ({ cacheRead: given.input, cacheWrite: given.input, ...given })),
)

const notALevel = 'must be what the model calls this level, a budget in tokens, or null where it has none'
const level = v.exactOptional(
  v.union(
    [v.pipe(v.string(), v.regex(/^[a-z][a-z0-9_-]*$/)), v.pipe(v.number(), v.integer(), v.minValue(0)), v.null()],
    notALevel,
  ),
)
const thinking = v.pipe(
  strict(
    { off: level, minimal: level, low: level, medium: level, high: level } satisfies Record<
      (typeof levels)[number],
      typeof level
    >,
    `a mapping of ${levels.join(', ')}`,
  ),
)

const headers = v.pipe(
  v.custom<Readonly<Record<string, unknown>>>(isMapping, 'must be a mapping of names and values'),
  v.record(v.string(), v.string('must be text')),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return
    for (const [key, value] of Object.entries(dataset.value)) {
      const message = headerProblem(key, value)
      if (message === undefined) continue
      const path: v.IssuePathItem = { type: 'object', origin: 'value', input: dataset.value, key, value: null }
      addIssue({ message, path: [path] })
    }
  }),
)

const common = {
  id: text,
  reasoning: v.optional(flag, false),
  contextWindow: v.optional(whole('tokens', 1), 200_000),
  maxTokens: v.optional(whole('tokens', 1), 8192),
  price: v.exactOptional(price),
  thinking: v.exactOptional(thinking),
}

const compat = strict(
  {
    supportsStore: v.exactOptional(flag),
    supportsDeveloperRole: v.exactOptional(flag),
    supportsReasoningEffort: v.exactOptional(flag),
    maxTokensField: v.exactOptional(oneOf(['max_output_tokens', 'max_completion_tokens', 'max_tokens'])),
  },
  'a mapping of compat keys',
)

function modelsOf<const Model extends v.GenericSchema<unknown, { readonly id: string }>>(model: Model) {
  return v.pipe(
    listOf(model, 'models'),
    v.check((models) => new Set(models.map(({ id }) => id)).size === models.length, 'has two models with one id'),
  )
}

const httpProvider = (ca: v.GenericSchema<string, string>) =>
  strict(
    {
      baseUrl: v.pipe(
        text,
        v.check(
          (url) => variableOf(url) !== undefined || isBaseUrl(url),
          'must be an http or https URL without user and password, or a $ENV_VAR reference',
        ),
      ),
      api: oneOf(apiNames),
      apiKey: v.exactOptional(v.pipe(v.string(noLiteral), v.regex(variable, noLiteral))),
      models: modelsOf(strict(common, 'a model')),
      compat: v.exactOptional(compat),
      headers: v.exactOptional(headers),
      ca: v.exactOptional(ca),
    },
    'a provider',
  )

/** Turns of a script file, or what is wrong with it. */
export type LoadedScript = { readonly turns: readonly ScriptedTurn[] } | { readonly problem: string }

/** The text of a file, or why there is none. */
export type LoadedText = { readonly text: string } | { readonly problem: string }

/** The schema of `models.yml`. `scripts` and `authorities` hold the files that it names, read before. */
export function modelsSchema(
  scripts: ReadonlyMap<string, LoadedScript>,
  authorities: ReadonlyMap<string, LoadedText> = new Map(),
) {
  const ca = v.pipe(
    text,
    v.rawTransform<string, string>(({ dataset, addIssue, NEVER }) => {
      const loaded = authorities.get(dataset.value)
      if (loaded !== undefined && 'text' in loaded) {
        if (loaded.text.includes('-----BEGIN CERTIFICATE-----')) return loaded.text
        addIssue({ message: `${dataset.value} holds no certificate in PEM form` })
      } else addIssue({ message: loaded?.problem ?? 'was not read' })
      return NEVER
    }),
  )
  const overHttp = httpProvider(ca)
  const script = v.pipe(
    text,
    v.rawTransform<string, readonly ScriptedTurn[]>(({ dataset, addIssue, NEVER }) => {
      const loaded = scripts.get(dataset.value)
      if (loaded !== undefined && 'turns' in loaded) return loaded.turns
      addIssue({ message: loaded?.problem ?? 'was not read' })
      return NEVER
    }),
  )
  const scriptedModel = v.pipe(
    strict({ ...common, turns: v.exactOptional(turnsSchema), script: v.exactOptional(script) }, 'a model'),
    v.check((model) => 'turns' in model !== 'script' in model, 'needs either turns or script'),
  )
  const scriptedProvider = strict(
    {
      api: v.literal('scripted'),
      models: modelsOf(scriptedModel),
    },
    'a provider',
  )
  const provider = v.lazy((input) => (isScripted(input) ? scriptedProvider : overHttp))
  const name = v.regex<string, string>(
    /^[A-Za-z0-9][A-Za-z0-9._-]*$/,
    'a provider is named with letters, digits, ".", "_" and "-", for the first slash of a model ends its name',
  )
  const providers = v.pipe(
    v.custom<Readonly<Record<string, unknown>>>(isMapping, 'must be a mapping from names to providers'),
    v.record(v.pipe(v.string(), name), provider),
  )
  return { provider, file: strict({ providers }, 'a mapping with the key providers') }
}

/** A provider as the file gives it. */
export type Provider = v.InferOutput<ReturnType<typeof modelsSchema>['provider']>

/** The script files that a file names, read without a schema. */
export function scriptsOf(file: unknown): readonly string[] {
  const providers = isMapping(file) && isMapping(file['providers']) ? Object.values(file['providers']) : []
  const models = providers
    .filter(isScripted)
    .flatMap((provider) => (Array.isArray(provider['models']) ? provider['models'] : []) as readonly unknown[])
  return models.flatMap((model) => (isMapping(model) && typeof model['script'] === 'string' ? [model['script']] : []))
}

/** The certificate files that a file names. */
export function authoritiesOf(file: unknown): readonly string[] {
  return Object.values(rawProviders(file)).flatMap((provider) =>
    isMapping(provider) && typeof provider['ca'] === 'string' ? [provider['ca']] : [],
  )
}

/** The providers of a file that parses, as they are. */
export function rawProviders(file: unknown): Readonly<Record<string, unknown>> {
  return isMapping(file) && isMapping(file['providers']) ? file['providers'] : {}
}

function isScripted(input: unknown): input is Readonly<Record<string, unknown>> {
  return isMapping(input) && input['api'] === 'scripted'
}

function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
