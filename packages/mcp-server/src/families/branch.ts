import type { MergeResult, Target } from '@reve/content-store'
import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import { bounded } from '../text.ts'

export const branch: Family = {
  name: 'branch',
  purpose:
    'Refs that remember where they came from. A merge is three-way; on a conflict nothing moves and every conflict is listed.',
  fields: {
    name: { type: 'string', description: 'The branch' },
    into: { type: 'string', description: 'The ref that takes the changes' },
    from_ref: { type: 'string', description: 'The ref that they come from' },
    note: { type: 'string', description: 'Why, for the history' },
  },
  hints: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  actions: {
    create: action({
      signature: 'branch.create(name, from_ref, note?)',
      fields: { name: field.name, from_ref: field.name, note: v.optional(field.text) },
      logged: ['name', 'from_ref', 'note'],
      effect: 'write',
      run: ({ store, seat }, { name, from_ref, note }) => {
        const state = store.branches.create(name, from_ref, { actor: seat.name, note })
        return `${state.name} ${state.tree} rev ${state.rev}`
      },
    }),
    merge: action({
      signature: 'branch.merge(into, from_ref, note?)',
      fields: { into: field.name, from_ref: field.name, note: v.optional(field.text) },
      logged: ['into', 'from_ref', 'note'],
      effect: 'long',
      run: async ({ store, seat, signal, recordWithEffect }, { into, from_ref, note }) =>
        showMerge(
          from_ref,
          await store.branches.merge(into, from_ref, {
            actor: seat.name,
            note,
            signal,
            within: (result) => recordWithEffect(showMerge(from_ref, result)),
          }),
        ),
    }),
    discard: action({
      signature: 'branch.discard(name)',
      fields: { name: field.name },
      logged: ['name'],
      effect: 'write',
      run: ({ store, seat }, { name }) => {
        store.branches.discard(name, { actor: seat.name })
        return `discarded ${name}; its history and trees stay`
      },
    }),
  },
}

function showMerge(from: string, result: MergeResult): string {
  const { into } = result
  const place = `${into.name} ${into.tree} rev ${into.rev}`
  switch (result.kind) {
    case 'merged':
      return bounded(
        [
          result.changed
            ? `merged ${from} into ${into.name}`
            : `${into.name} holds all of ${from} already; nothing was moved`,
          place,
          ...result.mergedTexts.map((path) => `merged line by line: ${path}`),
        ].join('\n'),
        'fs.diff shows the rest.',
      )
    case 'conflicts':
      return bounded(
        [
          `conflict: ${into.name} was not moved; ${result.conflicts.length} paths need a decision`,
          place,
          ...result.conflicts.map(({ path, kind, base, ours, theirs, marked, note }) =>
            [
              `${kind} ${path}${note === undefined ? '' : `: ${note}`}`,
              `  base ${shown(base)}`,
              `  ours ${shown(ours)}`,
              `  theirs ${shown(theirs)}`,
              ...(marked === undefined ? [] : [`  with conflict markers: blob ${marked} (exec.output reads it)`]),
            ].join('\n'),
          ),
        ].join('\n'),
        'Settle these first, then merge again.',
      )
    default:
      return result satisfies never
  }
}

const shown = (target: Target | null): string => (target === null ? '(nothing)' : `${target.kind} ${target.id}`)
