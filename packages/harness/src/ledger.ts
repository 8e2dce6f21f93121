import type { Usage } from '@reve/providers/model'
import { isEntry, type Line, type SessionView } from '@reve/session-log'
import { readRecord } from './records.ts'
import { addUsage, noUsage } from './settle.ts'

/** What requests used. `cost` is in US dollars and covers the priced ones only; `unpriced` counts the others. */
export type Spending = {
  readonly requests: number
  readonly usage: Usage
  readonly cost: number
  /** Requests for which the server reported no usage, or whose model has no price. */
  readonly unpriced: number
}

/** Nothing spent. */
export const noSpending: Spending = { requests: 0, usage: noUsage, cost: 0, unpriced: 0 }

/** Two spendings together. */
export function addSpending(a: Spending, b: Spending): Spending {
  return {
    requests: a.requests + b.requests,
    usage: addUsage(a.usage, b.usage),
    cost: a.cost + b.cost,
    unpriced: a.unpriced + b.unpriced,
  }
}

/** What a whole session spent. Days are `YYYY-MM-DD`, UTC, by the time of the record. */
export type LedgerReport = {
  readonly session: Spending
  readonly runs: ReadonlyMap<string, Spending>
  readonly lanes: ReadonlyMap<string, Spending>
  readonly days: ReadonlyMap<string, Spending>
}

/** The spending of a session, kept up to date line by line; an answer is `noSpending` for what it knows nothing of. */
export interface Ledger {
  /** Counts a line of the log; anything but a readable `usage` record is ignored, and so is one that was counted before. O(1). */
  add(line: Line): void
  session(): Spending
  run(runId: string): Spending
  lane(name: string): Spending
  /** Of a UTC day, `YYYY-MM-DD`. */
  day(isoDay: string): Spending
  /** Of the requests that settled at that instant (milliseconds since 1970) or later. Costs one day's requests. */
  since(ms: number): Spending
  /** All of it, as it is now. */
  report(): LedgerReport
}

/** Makes a ledger of what a session holds. Later lines go in through `add`. */
export function createLedger(view: Pick<SessionView, 'records'>): Ledger {
  const ledger = new SessionLedger()
  for (const record of view.records()) ledger.add(record)
  return ledger
}

/** What a session spent: one fold over its `usage` records. */
export function readLedger(view: Pick<SessionView, 'records'>): LedgerReport {
  return createLedger(view).report()
}

const dayMs = 86_400_000

/** The requests of one day by the id of their record, so that none counts twice. */
type Day = { total: Spending; readonly requests: Map<string, { readonly at: number; readonly spent: Spending }> }

class SessionLedger implements Ledger {
  #session = noSpending
  readonly #runs = new Map<string, Spending>()
  readonly #lanes = new Map<string, Spending>()
  readonly #days = new Map<string, Day>()

  add(line: Line): void {
    if (isEntry(line) || line.type !== 'usage') return
    const read = readRecord(line, 'usage')
    if (!read.ok) return
    const { runId, usage, cost } = read.payload
    const day = this.#dayOf(line.ts.slice(0, 10))
    if (day.requests.has(line.id)) return
    const unpriced = usage === null || cost === undefined ? 1 : 0
    const spent = { requests: 1, usage: usage ?? noUsage, cost: cost ?? 0, unpriced }
    day.requests.set(line.id, { at: Date.parse(line.ts), spent })
    day.total = addSpending(day.total, spent)
    this.#session = addSpending(this.#session, spent)
    this.#runs.set(runId, addSpending(this.run(runId), spent))
    this.#lanes.set(line.lane, addSpending(this.lane(line.lane), spent))
  }

  #dayOf(isoDay: string): Day {
    const known = this.#days.get(isoDay)
    if (known !== undefined) return known
    const day: Day = { total: noSpending, requests: new Map() }
    this.#days.set(isoDay, day)
    return day
  }

  session(): Spending {
    return this.#session
  }

  run(runId: string): Spending {
    return this.#runs.get(runId) ?? noSpending
  }

  lane(name: string): Spending {
    return this.#lanes.get(name) ?? noSpending
  }

  day(isoDay: string): Spending {
    return this.#days.get(isoDay)?.total ?? noSpending
  }

  since(ms: number): Spending {
    let sum = noSpending
    for (const [isoDay, day] of this.#days) {
      const start = Date.parse(isoDay)
      if (start >= ms) sum = addSpending(sum, day.total)
      else if (start + dayMs > ms) {
        for (const { at, spent } of day.requests.values()) if (at >= ms) sum = addSpending(sum, spent)
      }
    }
    return sum
  }

  report(): LedgerReport {
    return {
      session: this.#session,
      runs: new Map(this.#runs),
      lanes: new Map(this.#lanes),
      days: new Map(Array.from(this.#days, ([isoDay, { total }]) => [isoDay, total])),
    }
  }
}

/** At which point spending stops: all tokens of prompts and answers, cached ones too; US dollars. Absent: no bound. */
export type BudgetLimit = { readonly tokens?: number; readonly usd?: number }

/** Bounds of one run, and of a UTC day over all runs of the session. */
export type Budget = { readonly run?: BudgetLimit; readonly day?: BudgetLimit }

/** A budget that is used up, with what to tell the one who set it. */
export type OverBudget = { readonly scope: 'run' | 'day'; readonly message: string }

/** The first limit that is reached, of the run before the day; undefined when another request may be made. */
export function overBudget(
  budget: Budget,
  spent: { readonly run: Spending; readonly day: Spending },
): OverBudget | undefined {
  for (const scope of ['run', 'day'] as const) {
    const limit = budget[scope]
    const message = limit && reached(scope, limit, spent[scope])
    if (message !== undefined) return { scope, message }
  }
  return undefined
}

const words = {
  run: { whose: 'this run', otherwise: 'go on in a new run' },
  day: { whose: 'this day', otherwise: 'go on after 00:00 UTC' },
} as const

function reached(scope: 'run' | 'day', limit: BudgetLimit, { usage, cost, unpriced }: Spending): string | undefined {
  const { whose, otherwise } = words[scope]
  const say = (used: string, key: string): string =>
    `the budget of ${whose} is used up: ${used}; raise ${scope}.${key} or ${otherwise}`
  const tokens = usage.input + usage.cacheRead + usage.cacheWrite + usage.output
  if (limit.tokens !== undefined && tokens >= limit.tokens) {
    return say(`${tokens} tokens, the limit is ${limit.tokens}`, 'tokens')
  }
  if (limit.usd === undefined || cost < limit.usd) return undefined
  const more = unpriced > 0 ? ` (and ${unpriced} requests without a known price)` : ''
  return say(`$${cost.toFixed(4)}${more}, the limit is $${limit.usd}`, 'usd')
}
