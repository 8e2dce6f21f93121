import type { Answer } from './answer.ts'
import type { Connection } from './connection.ts'
import type { JsonObject, ModelRequest, Price } from './model.ts'
import type { ThinkingMap } from './thinking.ts'

/** The wire protocols that `models.yml` names; `scripted` has no wire. */
export const apis = ['openai-responses', 'openai-completions', 'anthropic-messages'] as const
export type Api = (typeof apis)[number]

/** What a server that imitates an API does differently. */
export type Compat = {
  /** It takes `store`; sent as false. Responses: default true. Chat Completions: default only at api.openai.com. */
  readonly supportsStore?: boolean
  /** It takes the role `developer` in Chat Completions. Default: only at api.openai.com. */
  readonly supportsDeveloperRole?: boolean
  /** It takes an effort (the OpenAI APIs) or thinking (Anthropic). Default true; of use for reasoning models only. */
  readonly supportsReasoningEffort?: boolean
  /** Its name for the output cap. Default: what the API calls it; in Chat Completions `max_tokens` outside of api.openai.com. */
  readonly maxTokensField?: 'max_output_tokens' | 'max_completion_tokens' | 'max_tokens'
}

/** One model behind one of the three protocols. */
export type HttpModelConfig = {
  readonly api: Api
  /** The part before the slash of the model's id. */
  readonly provider: string
  /** The model's name for its server. */
  readonly modelId: string
  /** An http or https URL up to where the API's paths begin (`https://api.openai.com/v1`). */
  readonly baseUrl: string
  readonly apiKey?: string
  /** The variable that held the key, for messages. */
  readonly apiKeyName?: string
  /** Whether it can think. */
  readonly reasoning: boolean
  /** Tokens. */
  readonly contextWindow: number
  /** Tokens of one answer. */
  readonly maxTokens: number
  readonly price?: Price
  readonly compat?: Compat
  /** Sent with each request, above what the API's own headers are. */
  readonly headers?: Readonly<Record<string, string>>
  /** Values that no message may show, besides the key: those of variables in `headers`. */
  readonly secrets?: readonly string[]
  /** What this model calls a level, where that is not what its API calls it; null: it has none, and nothing is sent. */
  readonly thinking?: ThinkingMap
  /** How its server is reached. */
  readonly connection?: Connection
}

/** A server-sent event, its data already parsed from JSON. */
export type WireEvent = { readonly name: string | undefined; readonly data: unknown }

/** What tells one protocol from another. All of it is pure. */
export type Protocol = {
  /** The path to add to the base's. */
  readonly path: (basePath: string) => string
  /** The path of its list of models. */
  readonly list: (basePath: string) => string
  /** @param model the one that is asked; absent for a list of models. */
  readonly headers: (apiKey: string | undefined, model?: HttpModelConfig) => Readonly<Record<string, string>>
  readonly body: (request: ModelRequest, config: HttpModelConfig) => JsonObject
  /** A reader that takes the events of one stream in order and writes them into `answer`. */
  readonly reader: (answer: Answer) => (event: WireEvent) => void
}

/** True at OpenAI's own API, where the newest form of everything is right. */
export function isOpenAi(config: HttpModelConfig): boolean {
  return hostOf(config) === 'api.openai.com'
}

/** True at Anthropic's own API. */
export function isAnthropic(config: HttpModelConfig): boolean {
  return hostOf(config) === 'api.anthropic.com'
}

function hostOf(config: HttpModelConfig): string | undefined {
  return URL.canParse(config.baseUrl) ? new URL(config.baseUrl).hostname : undefined
}
