/**
 * How far a verb is. `receiving` and `sending` count git objects on their way from and to the other side, `resolving` those that
 * are unpacked, `reading` and `writing` the objects that go into the store and come out of it.
 */
export type GitProgress = {
  readonly stage: 'receiving' | 'resolving' | 'reading' | 'writing' | 'sending'
  readonly done: number
  /** Undefined while it is not known. */
  readonly total: number | undefined
}

const stages: Readonly<Record<string, GitProgress['stage']>> = {
  'Receiving objects': 'receiving',
  'Unpacking objects': 'receiving',
  'Resolving deltas': 'resolving',
  'Writing objects': 'sending',
}

/** What a line of git's messages says about progress; `other` for progress that nobody needs, undefined for a message. */
export function progressOf(line: string): GitProgress | 'other' | undefined {
  const match =
    /^(?:remote: )?([A-Z][a-z]+ [a-z]+): +(?:\d+% \((?<done>\d+)\/(?<total>\d+)\)|\d+(?:, done\.)?\s*$)/.exec(line)
  if (match === null) return /^(?:remote: )?Total \d+ \(delta/.test(line) ? 'other' : undefined
  const stage = stages[match[1] ?? '']
  const { done, total } = match.groups ?? {}
  if (stage === undefined || done === undefined || total === undefined) return 'other'
  return { stage, done: Number(done), total: Number(total) }
}
