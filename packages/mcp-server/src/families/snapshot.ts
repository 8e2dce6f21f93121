import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import { bounded } from '../text.ts'

export const snapshot: Family = {
  name: 'snapshot',
  purpose:
    'Where every ref points at one moment, under a name that is taken once. rollback moves each recorded ref back; a ref created since is left alone.',
  fields: {
    name: { type: 'string', description: "The snapshot's name" },
    note: { type: 'string', description: 'Why' },
  },
  hints: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  actions: {
    create: action({
      signature: 'snapshot.create(name, note?)',
      fields: { name: field.name, note: v.optional(field.text) },
      logged: ['name', 'note'],
      effect: 'write',
      run: ({ store, seat }, { name, note }) => {
        const made = store.snapshots.create(name, { actor: seat.name, note })
        return `snapshot ${made.name}: ${made.refs.length} refs\n${made.refs.map((state) => `${state.name} ${state.tree} rev ${state.rev}`).join('\n')}`
      },
    }),
    list: action({
      signature: 'snapshot.list()',
      fields: {},
      logged: [],
      effect: 'read',
      run: ({ store }) =>
        bounded(
          store.snapshots
            .list()
            .map(
              (made) =>
                `${made.name} ${made.at} ${made.actor}, ${made.refs.length} refs${made.note ? `: ${made.note}` : ''}`,
            )
            .join('\n') || '(no snapshots)',
          'There are more.',
        ),
    }),
    rollback: action({
      signature: 'snapshot.rollback(name)',
      fields: { name: field.name },
      logged: ['name'],
      effect: 'write',
      run: ({ store, seat }, { name }) => {
        const { moved } = store.snapshots.rollback(name, { actor: seat.name })
        if (moved.length === 0) return `every ref is where snapshot ${name} has it`
        return `${moved.length} refs moved back\n${moved.map(({ ref, from, to, rev }) => `${ref} ${to} rev ${rev} (was ${from ?? 'discarded'})`).join('\n')}`
      },
    }),
  },
}
