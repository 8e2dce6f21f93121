import type { Usage } from './model.ts'

/**
 * Counts as a server gave them, made ours. Undefined when nothing was counted: many servers send zeros for "unknown",
 * and a real request always has a prompt.
 */
export function usageOf(counts: Partial<Record<keyof Usage, number | null | undefined>>): Usage | undefined {
  const usage: Usage = {
    input: count(counts.input),
    cacheRead: count(counts.cacheRead),
    cacheWrite: count(counts.cacheWrite),
    output: count(counts.output),
    reasoning: count(counts.reasoning),
  }
  return usage.input + usage.cacheRead + usage.cacheWrite + usage.output === 0 ? undefined : usage
}

function count(value: number | null | undefined): number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : 0
}
