import type { Thinking } from './model.ts'

/** What the OpenAI APIs call an effort. */
export type Effort = 'none' | 'minimal' | 'low' | 'medium' | 'high'

/** The OpenAI effort of a thinking level; a budget in tokens becomes the nearest level that it pays for. */
export function effortOf(thinking: Thinking): Effort {
  if (typeof thinking !== 'number') return thinking === 'off' ? 'none' : thinking
  if (thinking <= 0) return 'none'
  if (thinking <= 1024) return 'minimal'
  if (thinking <= 4096) return 'low'
  return thinking <= 12_288 ? 'medium' : 'high'
}

/** The levels that a request may name. */
export const levels = ['off', 'minimal', 'low', 'medium', 'high'] as const
type Level = (typeof levels)[number]

/** Of one model: a level's own name for an effort, or a budget in tokens; null where it has no such level. */
export type ThinkingMap = Readonly<Partial<Record<Level, string | number | null>>>

/** What the model's map says of a request's thinking; undefined where it says nothing. A budget is of the level that it pays for. */
export function mapped(thinking: Thinking, map: ThinkingMap | undefined): string | number | null | undefined {
  if (map === undefined) return undefined
  const effort = effortOf(thinking)
  return map[effort === 'none' ? 'off' : effort]
}

/** The effort to send to an OpenAI API; undefined to send none. */
export function effortToSend(thinking: Thinking | undefined, map: ThinkingMap | undefined): string | undefined {
  if (thinking === undefined) return undefined
  const own = mapped(thinking, map)
  if (own === null) return undefined
  return own === undefined ? effortOf(thinking) : typeof own === 'number' ? effortOf(own) : own
}

/** Anthropic's parameters for a thinking level: nothing, a budget, or its own judgement steered by an effort. */
export type AnthropicThinking =
  | { readonly mode: 'absent' }
  | { readonly mode: 'disabled' }
  | { readonly mode: 'budget'; readonly tokens: number }
  | { readonly mode: 'adaptive'; readonly effort: string }

const budgets = { minimal: 1024, low: 4096, medium: 8192, high: 16_384 } as const
/** The API's own floor. */
const smallestBudget = 1024

/**
 * Claude 4.6 and later decide by themselves and refuse (from Opus 4.7 on) a budget; all others want one. A budget is part
 * of the output cap, so at least a quarter of `maxTokens` is left for the answer; where that leaves less than the API's
 * smallest budget, the model does not think.
 */
export function anthropicThinking(
  thinking: Thinking,
  modelId: string,
  maxTokens: number,
  map?: ThinkingMap,
): AnthropicThinking {
  const own = mapped(thinking, map)
  if (own === null) return { mode: 'absent' }
  if (typeof own === 'string') return { mode: 'adaptive', effort: own }
  if (typeof own === 'number') return budgetOf(own, maxTokens)
  const version = claudeVersion(modelId)
  const adaptive = version !== undefined && version >= 4.06
  if (thinking === 'off' || (typeof thinking === 'number' && thinking <= 0)) {
    // Up to 4.x, not asking is off; later ones think unless told.
    return adaptive && version >= 5 ? { mode: 'disabled' } : { mode: 'absent' }
  }
  if (adaptive) {
    const effort = effortOf(thinking)
    return { mode: 'adaptive', effort: effort === 'medium' || effort === 'high' ? effort : 'low' }
  }
  return budgetOf(typeof thinking === 'number' ? thinking : budgets[thinking], maxTokens)
}

function budgetOf(wanted: number, maxTokens: number): AnthropicThinking {
  if (wanted <= 0) return { mode: 'disabled' }
  const tokens = Math.min(Math.max(Math.floor(wanted), smallestBudget), Math.floor(maxTokens * 0.75))
  return tokens < smallestBudget ? { mode: 'absent' } : { mode: 'budget', tokens }
}

/** 4.06 for `claude-opus-4-6` and `anthropic/claude-sonnet-4.6`; undefined for another naming. A date is not a minor version. */
function claudeVersion(modelId: string): number | undefined {
  const match = /claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)/.exec(modelId.toLowerCase())
  return match?.[1] === undefined ? undefined : Number(match[1]) + Number(match[2] ?? 0) / 100
}
