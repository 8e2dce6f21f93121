import { didYouMean } from '@reve/base'
import type { BoundAction, BoundCall } from './action.ts'
import { ComputerError } from './errors.ts'
import { resultBytes } from './text.ts'

/** A field as a model sees it. Hand-made and flat: what every client's schema subset knows. */
type FieldSchema =
  | {
      readonly type: 'string' | 'integer' | 'number' | 'boolean'
      readonly description: string
      readonly enum?: readonly string[]
    }
  | {
      readonly type: 'array'
      readonly description: string
      readonly items:
        | FieldSchema
        | {
            readonly type: 'object'
            readonly properties: Readonly<Record<string, FieldSchema>>
            readonly required: readonly string[]
            readonly additionalProperties: false
          }
    }
  | {
      readonly type: 'object'
      readonly description: string
      readonly additionalProperties: { readonly type: 'string' }
    }

/** One of the eight tools: its verbs, and the union of their fields. */
export type Family = {
  readonly name: string
  /** One sentence; the actions' signatures follow it in the tool's description. */
  readonly purpose: string
  readonly actions: Readonly<Record<string, BoundAction>>
  readonly fields: Readonly<Record<string, FieldSchema>>
  readonly hints: {
    readonly readOnly: boolean
    readonly destructive: boolean
    readonly idempotent: boolean
    readonly openWorld: boolean
  }
}

/** A family as `tools/list` gives it. */
export function toolOf(family: Family) {
  const signatures = Object.values(family.actions).map(({ signature }) => signature)
  return {
    name: family.name,
    description: `Actions:\n${signatures.join('\n')}\n\n${family.purpose}`,
    inputSchema: {
      type: 'object' as const,
      properties: {
        action: {
          type: 'string',
          enum: Object.keys(family.actions),
          description: 'The verb; the other fields are those of its signature',
        },
        ...family.fields,
      },
      required: ['action'],
      additionalProperties: false,
    },
    annotations: {
      readOnlyHint: family.hints.readOnly,
      destructiveHint: family.hints.destructive,
      idempotentHint: family.hints.idempotent,
      openWorldHint: family.hints.openWorld,
    },
    // Some clients refuse a long result unless the tool says beforehand how long it may be.
    _meta: { 'anthropic/maxResultSizeChars': resultBytes },
  }
}

/** What a call asks for, as far as it can be told: it names the event of a call that is refused too. */
export function targetOf(
  family: Family,
  args: unknown,
): { readonly tool: string; readonly action: BoundAction | undefined } {
  const verb = typeof args === 'object' && args !== null && 'action' in args ? args.action : undefined
  const name = typeof verb === 'string' ? verb.slice(0, 64) : '?'
  return {
    tool: `${family.name}.${name}`,
    action: typeof verb === 'string' && Object.hasOwn(family.actions, verb) ? family.actions[verb] : undefined,
  }
}

/**
 * Binds a call to its action's own signature.
 *
 * @throws ComputerError `bad_call` naming the action, the field, and what was expected.
 */
export function bindCall(family: Family, args: unknown): BoundCall {
  const verbs = Object.keys(family.actions)
  if (typeof args !== 'object' || args === null || Array.isArray(args)) {
    throw new ComputerError('bad_call', `${family.name} takes an object with an "action": ${verbs.join(', ')}`)
  }
  const { action: verb, ...rest } = args as { readonly action?: unknown }
  if (typeof verb !== 'string') {
    throw new ComputerError('bad_call', `${family.name} needs "action", one of ${verbs.join(', ')}`)
  }
  const { tool, action } = targetOf(family, args)
  if (action === undefined) {
    throw new ComputerError(
      'bad_call',
      `${family.name} has no action "${verb.slice(0, 64)}"${didYouMean(verb, verbs)}; it has ${verbs.join(', ')}`,
    )
  }
  return action.bind(tool, rest)
}
