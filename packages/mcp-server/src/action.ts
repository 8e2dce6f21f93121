import { describeIssues, didYouMean } from '@reve/base'
import type { ActionRunner } from '@reve/action-runner'
import type { Store } from '@reve/content-store'
import type { GitBridge } from '@reve/git-bridge'
import * as v from 'valibot'
import { ComputerError } from './errors.ts'
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
      readonly run: (context: ActionContext, args: v.InferOutput<v.StrictObjectSchema<Entries, undefined>>) => string
    }
  | {
      readonly effect: 'read' | 'long'
      readonly run: (
        context: ActionContext,
        args: v.InferOutput<v.StrictObjectSchema<Entries, undefined>>,
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
  const schema = v.strictObject(definition.fields)
  const fields = Object.keys(definition.fields)
  return {
    signature: definition.signature,
    logged: new Set(['action', ...definition.logged]),
    fields,
    bind: (name, args) => {
      const parsed = v.safeParse(schema, args)
      if (!parsed.success) {
        const problems = describeIssues(parsed.issues).map(({ path, message }) => problem(path, message, fields))
        throw new ComputerError('bad_call', `${name}: ${problems.join('; ')}. Signature: ${definition.signature}`)
      }
      return definition.effect === 'write'
        ? { effect: definition.effect, run: (context) => definition.run(context, parsed.output) }
        : { effect: definition.effect, run: (context) => definition.run(context, parsed.output) }
    },
  }
}

function problem(path: string, message: string, fields: readonly string[]): string {
  const [field = ''] = path.split('/')
  if (field !== '' && !fields.includes(field)) return `takes no field "${field}"${didYouMean(field, fields)}`
  return path === '' ? message : `"${path}" ${message}`
}

/** Schemas of the fields that several actions share. The messages continue `"field" …`. */
export const field = {
  text: v.string('must be a string'),
  name: v.pipe(v.string('must be a string'), v.nonEmpty('must not be empty')),
  flag: v.boolean('must be true or false'),
  count: v.pipe(
    v.number('must be a whole number from 1'),
    v.integer('must be a whole number from 1'),
    v.minValue(1, 'must be a whole number from 1'),
  ),
  seconds: v.pipe(
    v.number('must be a number of seconds above 0'),
    v.minValue(0.001, 'must be a number of seconds above 0'),
  ),
  texts: v.array(v.string('must be a string'), 'must be a list of strings'),
} as const
