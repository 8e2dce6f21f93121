import { didYouMean } from '@reve/base'
import * as v from 'valibot'

/**
 * Valibot schemas for files that people write. Messages say what should stand there and never repeat what does: a
 * secret may stand in the wrong place. An unknown key gets a spelling hint.
 */
export function strict<const Entries extends v.ObjectEntries>(entries: Entries, what: string) {
  const keys = Object.keys(entries)
  return v.strictObject(entries, (issue) => {
    if (issue.expected === 'never') {
      return `unknown key${didYouMean(String(issue.input), keys)}; known are ${keys.join(', ')}`
    }
    // For a missing key valibot expects its quoted name.
    return (issue.expected ?? '').startsWith('"') ? 'is missing' : `must be ${what}`
  })
}

export const text = v.pipe(v.string('must be text'), v.nonEmpty('must not be empty'))
export const anyText = v.string('must be text')
export const flag = v.boolean('must be true or false')

/** A whole number of `unit`, at least `least`. */
export function whole(unit: string, least: number) {
  return v.pipe(
    v.number(`must be a whole number of ${unit}`),
    v.integer(`must be a whole number of ${unit}`),
    v.minValue(least, `must be at least ${least}`),
  )
}

/** One of `words`. */
export function oneOf<const Words extends readonly string[]>(words: Words) {
  return v.picklist(words, (issue) => {
    const hint = typeof issue.input === 'string' ? didYouMean(issue.input, words) : ''
    return `must be one of ${words.join(', ')}${hint}`
  })
}

/** A list of at least one. */
export function listOf<const Item extends v.GenericSchema>(item: Item, what: string) {
  return v.pipe(v.array(item, `must be a list of ${what}`), v.minLength(1, `must list at least one of ${what}`))
}
