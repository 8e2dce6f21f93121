/** One comparison: ours and a peer, measured in turn in the same run, so that a noisy machine is noisy for both. */
export type Comparison = {
  readonly name: string
  readonly peer: string
  readonly goal?: string
  readonly ours: () => Promise<void>
  readonly theirs: () => Promise<void>
}

export type Outcome = {
  readonly name: string
  readonly peer: string
  readonly oursMs: number
  readonly theirsMs: number
  /** Ours divided by the peer's. */
  readonly ratio: number
  readonly goal: string
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN

async function timed(work: () => Promise<void>): Promise<number> {
  const started = performance.now()
  await work()
  return performance.now() - started
}

/** Medians of `rounds` interleaved rounds, after one round that does not count. */
export async function compare(comparison: Comparison, rounds: number): Promise<Outcome> {
  const ours: number[] = []
  const theirs: number[] = []
  for (let round = -1; round < rounds; round++) {
    const a = await timed(comparison.ours)
    const b = await timed(comparison.theirs)
    if (round < 0) continue
    ours.push(a)
    theirs.push(b)
  }
  const oursMs = median(ours)
  const theirsMs = median(theirs)
  return {
    name: comparison.name,
    peer: comparison.peer,
    oursMs,
    theirsMs,
    ratio: oursMs / theirsMs,
    goal: comparison.goal ?? '',
  }
}
