/**
 * How long a server asks to wait, in milliseconds: `retry-after-ms`, or `Retry-After` as seconds or as an HTTP date.
 * Junk and negative values are no answer; a date that is over is 0.
 *
 * @param now milliseconds since the epoch, to which a date is compared.
 */
export function retryAfter(headers: Headers, now: number): number | undefined {
  const exact = decimal(headers.get('retry-after-ms'))
  if (exact !== undefined) return Math.ceil(exact)
  const value = headers.get('retry-after')
  const seconds = decimal(value)
  if (seconds !== undefined) return Math.ceil(seconds * 1000)
  // A date names its month: `Date.parse` alone would take "-5" for a year.
  if (value === null || !/^\s*\w{3,9},? .*\d{2}:\d{2}:\d{2}/.test(value)) return undefined
  const at = Date.parse(value)
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}

function decimal(text: string | null): number | undefined {
  if (text === null || !/^\s*\d{1,12}(?:\.\d{1,12})?\s*$/.test(text)) return undefined
  return Number(text)
}
