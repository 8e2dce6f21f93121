import { didYouMean } from '@reve/base'
import * as v from 'valibot'
import { emptyTableAsList, luaTypeName } from './values.ts'

/** A problem with a spec: `path` is where in the table (`params/0/type`), empty for the call itself. */
export type SpecProblem = { readonly path: string; readonly message: string }

export const text = v.string((issue) => `must be a string, got ${luaTypeName(issue.input)}`)

/** The names of commands and of what else people type. */
export const shortName = (what: string) =>
  v.pipe(text, v.regex(/^[a-z][a-z0-9_-]{0,31}$/, `must be ${what}: 1 to 32 of a-z, 0-9, _ and -, a letter first`))

export const list = <T extends v.GenericSchema>(item: T, example: string) =>
  v.pipe(
    v.unknown(),
    v.transform(emptyTableAsList),
    v.array(item, (issue) => `must be a list like ${example}, got ${luaTypeName(issue.input)}`),
  )

export function oneOf<const T extends readonly [string, ...string[]]>(values: T) {
  const choices = values.map((value) => `"${value}"`).join(', ')
  return v.picklist(values, (issue) => {
    const hint = typeof issue.input === 'string' ? didYouMean(issue.input, values) : ''
    return `must be one of ${choices}, got ${luaTypeName(issue.input)}${hint}`
  })
}

/** The message of a strict object with these keys. */
export function unknownKey(known: readonly string[], shape: string) {
  return (issue: v.StrictObjectIssue): string => {
    if (issue.expected === 'never') {
      const key = issue.path?.at(-1)?.key
      return `unknown key${didYouMean(String(key), known)}; known are ${known.join(', ')}`
    }
    return issue.path === undefined || issue.expected === 'Object'
      ? `must be a table like ${shape}, got ${luaTypeName(issue.input)}`
      : 'is missing'
  }
}

/** What valibot found, with the place in the author's words. `whole` is what the table itself is called. */
export function problemsOf(
  issues: readonly v.BaseIssue<unknown>[],
  label: string,
  whole: string,
): readonly SpecProblem[] {
  return issues.map((issue) => {
    const keys = (issue.path ?? []).map((item) => String(item.key))
    const where = keys.length === 0 ? whole : describePath(keys)
    return { path: keys.join('/'), message: `${label}: ${where} ${issue.message}` }
  })
}

/** `params/0/type` as `params[1].type`. */
function describePath(keys: readonly string[]): string {
  return keys.map((key, index) => (/^\d+$/.test(key) ? `[${Number(key) + 1}]` : index === 0 ? key : `.${key}`)).join('')
}
