type Named = {
  readonly name: string
  readonly goal?: string
}

/**
 * One comparison: ours and a peer, measured in turn in the same run, so that a noisy machine is noisy for both. Each side is
 * timed; or, where there are `rows`, says its own numbers, one a row.
 */
export type Comparison = {
  readonly peer: string
  /** Done once, before anything is measured. When it fails the comparison is left out, and the run says why. */
  readonly prepare?: () => Promise<void>
} & (
  | (Named & { readonly ours: () => Promise<void>; readonly theirs: () => Promise<void> })
  | {
      readonly rows: readonly (Named & { readonly unit: string })[]
      readonly ours: () => Promise<readonly number[]>
      readonly theirs: () => Promise<readonly number[]>
    }
)

/** A row of the table. */
export type Outcome = {
  readonly name: string
  readonly peer: string
  readonly unit: string
  readonly ours: number
  readonly theirs: number
  /** Ours divided by the peer's. */
  readonly ratio: number
  readonly goal: string
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN

const timed = (work: () => Promise<void>) => async (): Promise<readonly number[]> => {
  const started = performance.now()
  await work()
  return [performance.now() - started]
}

/** Medians of `rounds` interleaved rounds, after one round that does not count. */
export async function compare(comparison: Comparison, rounds: number): Promise<readonly Outcome[]> {
  await comparison.prepare?.()
  const sides =
    'rows' in comparison
      ? comparison
      : {
          rows: [{ name: comparison.name, unit: 'ms', goal: comparison.goal ?? '' }],
          ours: timed(comparison.ours),
          theirs: timed(comparison.theirs),
        }
  const ours: (readonly number[])[] = []
  const theirs: (readonly number[])[] = []
  for (let round = -1; round < rounds; round++) {
    const a = await sides.ours()
    const b = await sides.theirs()
    if (round < 0) continue
    ours.push(a)
    theirs.push(b)
  }
  return sides.rows.map(({ name, unit, goal = '' }, row) => {
    const of = (side: readonly (readonly number[])[]) => median(side.map((numbers) => numbers[row] ?? Number.NaN))
    return { name, peer: comparison.peer, unit, ours: of(ours), theirs: of(theirs), ratio: of(ours) / of(theirs), goal }
  })
}
