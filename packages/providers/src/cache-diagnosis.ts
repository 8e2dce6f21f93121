import type { ModelRequest, Usage } from './model.ts'

/** One request that was answered, as whoever asked knows it. */
export type AskedRequest = {
  /** `provider/model-id`. */
  readonly model: string
  readonly request: ModelRequest
  readonly usage?: Usage
}

/** Where two requests are no longer the same: what a server's cache compares comes in this order. */
export type Divergence =
  | { readonly at: 'model' | 'thinking' | 'tools' | 'system' }
  /** Number of the first message that differs, from 0. */
  | { readonly at: 'message'; readonly index: number }

/**
 * Whether a request read from the server's cache what the one before it had left there.
 * - `unknown`: one of the two has no usage, or the server has never said anything of a cache.
 * - `too_small`: the request before was shorter than servers keep.
 * - `hit`: what was the same was read, as far as servers count it.
 * - `changed`: the request itself differs from the one before, from `from` on; nothing is wrong with the server.
 * - `lost`: the same beginning was sent and not read: the cache had expired, or another machine answered.
 *
 * `expected` and `read` are tokens.
 */
export type CacheDiagnosis =
  | { readonly type: 'unknown' | 'too_small' }
  | { readonly type: 'hit'; readonly expected: number; readonly read: number }
  | { readonly type: 'changed'; readonly from: Divergence; readonly expected: number; readonly read: number }
  | { readonly type: 'lost'; readonly expected: number; readonly read: number }

/** No server keeps less. */
const LEAST = 1024
/** Servers count in blocks, and put their own marks around messages. */
const TOLERATED = 0.1

/** Compares a request with the one before it in the same conversation. Pure. */
export function diagnoseCache(before: AskedRequest, now: AskedRequest): CacheDiagnosis {
  if (before.usage === undefined || now.usage === undefined) return { type: 'unknown' }
  const expected = before.usage.input + before.usage.cacheRead + before.usage.cacheWrite
  const read = now.usage.cacheRead
  if (expected < LEAST) return { type: 'too_small' }
  if (read >= expected * (1 - TOLERATED) - LEAST && read > 0) return { type: 'hit', expected, read }
  const from = divergence(before, now)
  if (from !== undefined) return { type: 'changed', from, expected, read }
  const speaksOfCaches = [before.usage, now.usage].some(({ cacheRead, cacheWrite }) => cacheRead > 0 || cacheWrite > 0)
  return speaksOfCaches ? { type: 'lost', expected, read } : { type: 'unknown' }
}

/** Where the later request stops being the earlier one, longer; undefined when it only goes on. */
export function divergence(before: AskedRequest, now: AskedRequest): Divergence | undefined {
  const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b)
  if (before.model !== now.model) return { at: 'model' }
  if (!same(before.request.tools, now.request.tools)) return { at: 'tools' }
  if (before.request.system !== now.request.system) return { at: 'system' }
  if (!same(before.request.thinking, now.request.thinking)) return { at: 'thinking' }
  const index = before.request.messages.findIndex((message, at) => {
    const other = now.request.messages[at]
    return message !== other && !same(message, other)
  })
  return index < 0 ? undefined : { at: 'message', index }
}

/** The diagnosis as a sentence; undefined where there is nothing to tell. */
export function cacheText(diagnosis: CacheDiagnosis): string | undefined {
  switch (diagnosis.type) {
    case 'unknown':
    case 'too_small':
    case 'hit':
      return undefined
    case 'changed':
    case 'lost': {
      const tokens = `${diagnosis.read} of ${diagnosis.expected} tokens came out of the server's cache`
      if (diagnosis.type === 'lost')
        return `${tokens}, though the request begins as the one before: the cache had expired, or another machine answered`
      const { from } = diagnosis
      return `${tokens}: the request differs from the one before from ${from.at === 'message' ? `message ${from.index + 1}` : `its ${from.at}`} on`
    }
    default:
      return diagnosis satisfies never
  }
}
