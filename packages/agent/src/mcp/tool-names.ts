import { createHash } from 'node:crypto'

/** The longest name that every API takes; the letters, digits, `_` and `-` are what all of them take. */
const longest = 64

/**
 * Names under which a server's tools are offered: `<server>__<tool>`. A name that does not fit, or that another tool has after it
 * was made to fit, gets a part of its own hash, so that it stays the same whatever other tools there are. Of two tools with
 * the same name the first one counts.
 *
 * @returns from the offered name to the server's own.
 */
export function toolNames(server: string, names: readonly string[]): ReadonlyMap<string, string> {
  const plain = new Map<string, string>()
  const changed: [string, string][] = []
  for (const name of new Set(names)) {
    const fit = `${server}__${name.replaceAll(/[^A-Za-z0-9_-]/gu, '_')}`
    if (fit === `${server}__${name}` && fit.length <= longest) plain.set(fit, name)
    else changed.push([fit, name])
  }
  for (const [fit, name] of changed) {
    const mark = `_${createHash('sha256').update(name).digest('hex').slice(0, 8)}`
    const offered = `${fit.slice(0, longest - mark.length)}${mark}`
    if (!plain.has(offered)) plain.set(offered, name)
  }
  return plain
}
