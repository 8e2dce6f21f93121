import type { SecretRule } from '../egress/secrets.ts'
import type { SecretValue } from './driver-protocol.ts'
import { sourceOf, variableOf } from './plan.ts'

/** What has to be told so that the SDK knows the values as they are now. */
export type SecretChange = { readonly values: readonly SecretValue[]; readonly removed: readonly string[] }

/** Follows the values of a VM's secrets from its start on: a new value counts with the next command, one that is gone is revoked. */
export class SecretValues {
  readonly #rules: readonly SecretRule[]
  readonly #told = new Map<number, string>()
  readonly #revoked = new Set<number>()

  /** @param rules the secrets that the VM was configured with, in that order */
  constructor(rules: readonly SecretRule[]) {
    this.#rules = rules
  }

  /** What changed since it was last told; undefined: nothing. */
  change(): SecretChange | undefined {
    const values: SecretValue[] = []
    const removed: string[] = []
    for (const [index, rule] of this.#rules.entries()) {
      if (this.#revoked.has(index)) continue
      const value = rule.value()
      if (value === undefined || value === '') removed.push(variableOf(index))
      else if (value !== this.#told.get(index))
        values.push({ variable: variableOf(index), source: sourceOf(index), value })
    }
    return values.length === 0 && removed.length === 0 ? undefined : { values, removed }
  }

  /** The change has been told. What was revoked comes back with the next start only: the SDK adds none to a running VM. */
  told(change: SecretChange): void {
    for (const [index] of this.#rules.entries()) {
      const value = change.values.find(({ variable }) => variable === variableOf(index))
      if (value !== undefined) this.#told.set(index, value.value)
      if (change.removed.includes(variableOf(index))) this.#revoked.add(index)
    }
  }
}
