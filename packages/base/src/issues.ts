import type { BaseIssue } from 'valibot'

/** A place in a value and what is wrong there. */
export type Described = {
  /** JSON pointer without its leading slash: `secrets/0/hosts`; empty for the value itself. */
  readonly path: string
  readonly message: string
}

/** Valibot's issues as places and messages. */
export function describeIssues(issues: readonly BaseIssue<unknown>[]): readonly Described[] {
  return issues.map((issue) => ({
    path: (issue.path ?? []).map((item) => String(item.key)).join('/'),
    message: issue.message,
  }))
}
