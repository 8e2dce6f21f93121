import * as v from 'valibot'
import type { ChannelDeclaration, CommandDeclaration, HookDeclaration } from './declarations.ts'
import { hookEvents } from './declarations.ts'
import { LIBRARY } from './module-name.ts'
import type { RawDeclaration } from './protocol.ts'
import { oneOf, problemsOf, shortName, text, unknownKey, type SpecProblem } from './spec-schema.ts'
import { luaTypeName } from './values.ts'

/*
 * What `command()`, `on()` and `channel{}` were given, checked. Pure; all problems of one call at once.
 */

export type Checked<T> =
  | { readonly type: 'good'; readonly value: T }
  | { readonly type: 'bad'; readonly problems: readonly SpecProblem[] }

const answer = <T>(value: T | undefined, problems: readonly SpecProblem[]): Checked<T> =>
  value !== undefined && problems.length === 0 ? { type: 'good', value } : { type: 'bad', problems }

const atOf = ({ file, line }: RawDeclaration): { readonly file: string; readonly line: number } => ({ file, line })

const commandSpec = v.strictObject(
  { description: v.optional(text, ''), args: v.optional(text) },
  unknownKey(['description', 'args', 'run'], '{ description = "…", run = function(args, ctx) … end }'),
)

/** `command(name, { description, args, run })` */
export function checkCommand(raw: RawDeclaration): Checked<CommandDeclaration> {
  const problems: SpecProblem[] = []
  const name = v.safeParse(shortName('the name of a command'), raw.name)
  if (!name.success) problems.push(...name.issues.map(({ message }) => ({ path: '', message: `command: ${message}` })))
  const label = name.success ? `command "${name.output}"` : 'command'
  const spec = v.safeParse(commandSpec, raw.value)
  if (!spec.success) problems.push(...problemsOf(spec.issues, label, 'its second argument'))
  const run = raw.functions['run'] ?? 'nil'
  if (run !== 'function' && (spec.success || spec.issues.some(({ path }) => path !== undefined)))
    problems.push({ path: '', message: `${label}: run must be a function(args, ctx), got ${run}` })
  const value =
    name.success && spec.success
      ? {
          name: name.output,
          description: spec.output.description,
          ...(spec.output.args === undefined ? {} : { args: spec.output.args }),
          at: atOf(raw),
        }
      : undefined
  return answer(value, problems)
}

/** `on(event, function(event, ctx) … end)`; `index` counts the calls of `on`, good or bad. */
export function checkHook(raw: RawDeclaration, index: number): Checked<HookDeclaration> {
  const problems: SpecProblem[] = []
  const event = v.safeParse(oneOf(hookEvents), raw.name)
  if (!event.success)
    problems.push(...event.issues.map(({ message }) => ({ path: '', message: `on: its first argument ${message}` })))
  const given = v.safeParse(v.object({ more: v.number() }), raw.value)
  if (given.success && given.output.more > 0) problems.push({ path: '', message: 'on takes an event and a function' })
  const hook = raw.functions['hook'] ?? 'nil'
  if (hook !== 'function')
    problems.push({ path: '', message: `on: its second argument must be a function(event, ctx), got ${hook}` })
  return answer(event.success ? { event: event.output, index, at: atOf(raw) } : undefined, problems)
}

const units = { s: 1000, m: 60_000, h: 3_600_000 } as const

const every = v.pipe(
  v.union(
    [v.number(), v.string()],
    (issue) => `must be a time like "30s", "5m", "1h" or a number of seconds, got ${luaTypeName(issue.input)}`,
  ),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const given = dataset.value
    const [, amount, unit] = typeof given === 'string' ? (/^(\d{1,6})([smh])$/.exec(given) ?? []) : []
    const ms =
      typeof given === 'number'
        ? given * 1000
        : unit === 's' || unit === 'm' || unit === 'h'
          ? Number(amount) * units[unit]
          : Number.NaN
    if (ms >= 1000 && ms <= 24 * units.h) return Math.round(ms)
    addIssue({
      message: `must be a time from "1s" to "24h" like "30s", "5m", "1h" or a number of seconds, got ${luaTypeName(given)}`,
    })
    return NEVER
  }),
)

const channelSpec = v.strictObject(
  { every: v.optional(every, '30s') },
  unknownKey(['every', 'poll', 'reply'], '{ every = "30s", poll = function(ctx) … end }'),
)

/** `channel { every, poll, reply }`; the channel has the name of its file. */
export function checkChannel(raw: RawDeclaration): Checked<ChannelDeclaration> {
  const problems: SpecProblem[] = []
  const own = /^channels\/(.*)\.lua$/.exec(raw.file)?.[1] ?? raw.file
  const name = v.safeParse(shortName('the name of a channel'), own)
  if (!name.success)
    problems.push(...name.issues.map(({ message }) => ({ path: '', message: `channel: the file's name ${message}` })))
  const label = `channel "${own}"`
  const spec = v.safeParse(channelSpec, raw.value)
  if (!spec.success) problems.push(...problemsOf(spec.issues, label, 'its argument'))
  const { poll = 'nil', reply = 'nil' } = raw.functions
  const isTable = spec.success || spec.issues.some(({ path }) => path !== undefined)
  if (isTable && poll !== 'function')
    problems.push({ path: '', message: `${label}: poll must be a function(ctx), got ${poll}` })
  if (isTable && reply !== 'function' && reply !== 'nil')
    problems.push({ path: '', message: `${label}: reply must be a function(answer, ctx), got ${reply}` })
  const value =
    name.success && spec.success
      ? { name: name.output, everyMs: spec.output.every, canReply: reply === 'function', at: atOf(raw) }
      : undefined
  return answer(value, problems)
}

/** What is wrong with the names of modules: `require` must mean one file. */
export function moduleClash(name: string, files: readonly string[]): string | undefined {
  if (name === '' || name.split('.').some((part) => !/^[A-Za-z0-9_-]+$/.test(part)))
    return `modules below ${LIBRARY}/ take letters, digits, _ and - in their names`
  return files.length < 2 ? undefined : `require("${name}") could mean ${files.join(' or ')}; rename one of them`
}
