import type { Usage } from '@reve/providers/model'
import type { Environment } from './environment.ts'
import { addSpending, noSpending, overBudget, type Spending } from './ledger.ts'
import { addUsage, noUsage } from './settle.ts'

/** What one operation spends, its sub-agents included where a budget asks. */
export type Tally = {
  /** A request of its own. */
  own(usage: Usage | undefined, cost: number | undefined, estimate?: Usage): void
  /** A request of a sub-agent. */
  below(usage: Usage | undefined, cost: number | undefined, estimate?: Usage): void
  /** Why nothing more may be asked for: by this operation, or by the one that it serves. */
  overBudget(): string | undefined
  /** Its own requests alone. */
  total(): { readonly usage: Usage; readonly cost?: number }
}

/** Makes a tally; `caller` is that of the operation which this one serves. */
export function createTally({ budget, ledger, effects }: Environment, caller?: Tally): Tally {
  let usage = noUsage
  let cost: number | undefined
  let all = noSpending
  /** What servers did not tell, by estimate: a budget counts it all the same. The ledger knows nothing of it. */
  let untold = noSpending
  const below: Tally['below'] = (used, price, estimate) => {
    all = addSpending(all, spendingOf(used ?? estimate, price))
    if (used === undefined && estimate !== undefined) untold = addSpending(untold, spendingOf(estimate, undefined))
    caller?.below(used, price, estimate)
  }
  return {
    own(used, price, estimate) {
      if (used !== undefined) usage = addUsage(usage, used)
      if (price !== undefined) cost = (cost ?? 0) + price
      below(used, price, estimate)
    },
    below,
    overBudget() {
      if (budget === undefined) return undefined
      const today = new Date(effects.now()).toISOString().slice(0, 10)
      const day = addSpending(ledger().day(today), untold)
      return overBudget(budget, { run: all, day })?.message ?? caller?.overBudget()
    },
    total: () => ({ usage, ...(cost !== undefined && { cost }) }),
  }
}

const spendingOf = (usage: Usage | undefined, cost: number | undefined): Spending => ({
  requests: 1,
  usage: usage ?? noUsage,
  cost: cost ?? 0,
  unpriced: usage === undefined || cost === undefined ? 1 : 0,
})
