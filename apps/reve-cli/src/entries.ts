import { labels, type SessionView } from '@reve/session-log'
import { UsageError } from './arguments.ts'
import type { Topic } from './command-table.ts'

/** The id of the entry that a word means: its own, or its label. What is neither is given back, for its refusal to name. */
export function entryNamed(view: SessionView, word: string, topic: Topic): string {
  if (view.entry(word) !== undefined) return word
  const found = [...labels(view)].flatMap(([id, label]) => (label === word ? [id] : []))
  if (found.length > 1)
    throw new UsageError(`several entries have the label ${JSON.stringify(word)}: ${found.join(', ')}`, topic)
  return found[0] ?? word
}
