import { describeIssues, didYouMean } from '@reve/base'
import type { ActionRunner } from '@reve/action-runner'
import type { Store } from '@reve/content-store'
import type { GitBridge } from '@reve/git-bridge'
import * as v from 'valibot'
import { ComputerError } from './errors.ts'
import { cutText } from './event-arguments.ts'
import type { Events } from './events.ts'
import type { Seat, Seats } from './seats.ts'

/** What an action works with. */
export type ActionContext = {
  readonly store: Store
  readonly runner: ActionRunner
  readonly git: GitBridge
  readonly seats: Seats
  readonly events: Events
  readonly seat: Seat
  /** Aborted when the client cancels, goes away, or the server ends. */
  readonly signal: AbortSignal
  /** Tells the client that a long call is alive. */
  readonly progress: (text: string) => void
  /**
   * For a long call whose effect is one transaction: called inside of it with the call's answer, it writes the event there,
   * so that neither is there without the other.
   */
  readonly recordWithEffect: (answer: string) => void
}

/**
 * One verb of a family. Its effect on the computer: `read` changes nothing; `write` changes the store in one synchronous
 * step, which commits together with its event; `long` takes its time and commits its own effect.
 */
type Definition<Entries extends v.ObjectEntries> = {
  /** As the specification writes it: `fs.read(tree, path, offset?, limit?)`. */
  readonly signature: string
  readonly fields: Entries
  /** Fields whose values an event may hold; of any other it holds the size. */
  readonly logged: readonly string[]
} & (
  | {
      readonly effect: 'write'
      readonly run: (context: ActionContext, args: v.InferOutput<v.StrictObjectSchema<Entries, string>>) => string
    }
  | {
      readonly effect: 'read' | 'long'
      readonly run: (
        context: ActionContext,
        args: v.InferOutput<v.StrictObjectSchema<Entries, string>>,
      ) => string | Promise<string>
    }
)

/** An action whose arguments are checked when it is called. */
export type BoundAction = {
  readonly signature: string
  readonly logged: ReadonlySet<string>
  readonly fields: readonly string[]
  /** @throws ComputerError `bad_call` naming the action and the field. */
  readonly bind: (name: string, args: unknown) => BoundCall
}

/** A call whose arguments are checked. A `write` runs in one go, so that a transaction can hold it. */
export type BoundCall =
  | { readonly effect: 'write'; readonly run: (context: ActionContext) => string }
  | { readonly effect: 'read' | 'long'; readonly run: (context: ActionContext) => string | Promise<string> }

/** Ties an action's types together; what is outside sees arguments as unknown. */
export function action<const Entries extends v.ObjectEntries>(definition: Definition<Entries>): BoundAction {
  const schema = v.strictObject(definition.fields, 'must be given')
  const fields = Object.keys(definition.fields)
  return {
    signature: definition.signature,
    logged: new Set(['action', ...definition.logged]),
    fields,
    bind: (name, args) => {
      const parsed = v.safeParse(schema, args)
      if (!parsed.success) {
        const problems = describeIssues(parsed.issues.slice(0, shownProblems)).map(({ path, message }) =>
          problem(path, message, fields),
        )
        const more = parsed.issues.length > shownProblems ? [`${parsed.issues.length - shownProblems} more`] : []
        throw new ComputerError(
          'bad_call',
          `${name}: ${[...problems, ...more].join('; ')}. Signature: ${definition.signature}`,
        )
      }
      return definition.effect === 'write'
        ? { effect: definition.effect, run: (context) => definition.run(context, parsed.output) }
        : { effect: definition.effect, run: (context) => definition.run(context, parsed.output) }
    },
  }
}

const shownProblems = 8

function problem(path: string, message: string, fields: readonly string[]): string {
  const [field = ''] = path.split('/')
  if (field !== '' && !fields.includes(field))
    return `takes no field "${cutText(field, 64)}"${didYouMean(field, fields)}`
  return path === '' ? message : `"${path}" ${message}`
}

/** Half of a surrogate pair has no bytes: what is kept would not be what was sent. */
const string = v.pipe(
  v.string('must be a string'),
  v.check((text) => text.isWellFormed(), 'holds half of a surrogate pair'),
)

const isTexts = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string')
const isTextMap = (value: unknown): value is Readonly<Record<string, string>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && isTexts(Object.values(value))

/** A number that a client may well send as 1e300. */
const wholeNumber = (least: number, most: number) => {
  const message =
    most === Number.MAX_SAFE_INTEGER
      ? `must be a whole number from ${least}`
      : `must be a whole number from ${least} to ${most}`
  return v.pipe(v.number(message), v.integer(message), v.minValue(least, message), v.maxValue(most, message))
}

/**
 * Schemas of the fields that several actions share. The messages continue `"field" …`. Lists and maps have one message
 * for all that they hold: a long one that is wrong all over must not make a longer answer.
 */
export const field = {
  text: string,
  name: v.pipe(string, v.nonEmpty('must not be empty')),
  flag: v.boolean('must be true or false'),
  /** A line or another place, from 1. */
  position: wholeNumber(1, Number.MAX_SAFE_INTEGER),
  /** How many of something to show. */
  count: (most: number) => wholeNumber(1, most),
  revision: wholeNumber(0, Number.MAX_SAFE_INTEGER),
  seconds: (most: number) => {
    const message = `must be a number of seconds above 0, at most ${most}`
    return v.pipe(v.number(message), v.minValue(0.001, message), v.maxValue(most, message))
  },
  texts: v.custom<readonly string[]>(isTexts, 'must be a list of strings'),
  textMap: v.custom<Readonly<Record<string, string>>>(isTextMap, 'must map names to strings'),
} as const
