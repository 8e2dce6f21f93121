import type { Draft } from './draft.ts'
import { factText } from './fact-text.ts'
import type { SessionView } from './view.ts'

/** The fact that labels an entry: `fact_set {key: "label:<entryId>", value: "…"}`; a null takes the label off. */
const PREFIX = 'label:'

/**
 * The record that labels an entry, or takes its label off (`null`). One label an entry: a later one replaces it. A label is no
 * part of the tree, so that none can break a chain of parents.
 *
 * @param label one line of 1 to 200 characters without control characters; white space around it is left out.
 * @param lane whose record it is; a label counts in every lane.
 * @throws SessionLogError `bad_draft`. Whether the entry exists is not looked at: a label of none is ignored.
 */
export function labelDraft(entryId: string, label: string | null, lane = 'main'): Draft {
  return labelFact(entryId, label === null ? null : factText('the label', label), lane)
}

/** A label as it stands, whoever wrote it. */
export const labelFact = (entryId: string, value: string | null, lane: string): Draft => ({
  kind: 'record',
  lane,
  type: 'fact_set',
  payload: { key: PREFIX + entryId, value },
})

/** The labels of a session by entry id, in the order in which they were set. Only those of entries that are there. */
export function labels(view: SessionView): ReadonlyMap<string, string> {
  const found = new Map<string, string>()
  for (const record of view.records()) {
    const key = record['key']
    if (record.type !== 'fact_set' || typeof key !== 'string' || !key.startsWith(PREFIX)) continue
    const id = key.slice(PREFIX.length)
    const value = record['value']
    found.delete(id)
    if (typeof value === 'string' && view.entry(id) !== undefined) found.set(id, value)
  }
  return found
}
