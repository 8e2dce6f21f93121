import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import { bounded } from '../text.ts'

export const ref: Family = {
  name: 'ref',
  purpose:
    'The only mutable names: a ref points at a tree and keeps its history. ref.move names the tree it expects to find and is refused, naming the tree it found, when the ref has moved.',
  fields: {
    name: { type: 'string', description: "The ref's name" },
    tree: { type: 'string', description: 'A tree id, or the name of a ref' },
    expected_tree: { type: 'string', description: 'The tree id that the ref must point at' },
    new_tree: { type: 'string', description: 'The tree id to point at' },
    expected_rev: { type: 'integer', description: 'The rev that the ref must have, when the tree alone is not enough' },
    note: { type: 'string', description: 'Why, for the history' },
    limit: { type: 'integer', description: 'How many of the newest moves (default 20)' },
  },
  hints: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  actions: {
    list: action({
      signature: 'ref.list()',
      fields: {},
      logged: [],
      effect: 'read',
      run: ({ store }) =>
        bounded(
          store.refs
            .list()
            .map((state) => `${state.name} ${state.tree} rev ${state.rev}`)
            .join('\n') || '(no refs)',
          'Ask for one with ref.get.',
        ),
    }),
    get: action({
      signature: 'ref.get(name)',
      fields: { name: field.name },
      logged: ['name'],
      effect: 'read',
      run: ({ store }, { name }) => {
        const state = store.refs.get(name)
        return `${state.name} ${state.tree} rev ${state.rev}`
      },
    }),
    create: action({
      signature: 'ref.create(name, tree, note?)',
      fields: { name: field.name, tree: field.name, note: v.optional(field.text) },
      logged: ['name', 'tree', 'note'],
      effect: 'write',
      run: ({ store, seat }, { name, tree, note }) => {
        const state = store.refs.create(name, store.refs.resolve(tree), { actor: seat.name, note })
        return `${state.name} ${state.tree} rev ${state.rev}`
      },
    }),
    move: action({
      signature: 'ref.move(name, expected_tree, new_tree, note?, expected_rev?)',
      fields: {
        name: field.name,
        expected_tree: field.name,
        new_tree: field.name,
        note: v.optional(field.text),
        expected_rev: v.optional(field.revision),
      },
      logged: ['name', 'expected_tree', 'new_tree', 'note', 'expected_rev'],
      effect: 'write',
      run: ({ store, seat }, { name, expected_tree, new_tree, note, expected_rev }) => {
        const state = store.refs.move(name, {
          expectedTree: expected_tree,
          newTree: new_tree,
          actor: seat.name,
          ...(note === undefined ? {} : { note }),
          ...(expected_rev === undefined ? {} : { expectedRev: expected_rev }),
        })
        return `${state.name} ${state.tree} rev ${state.rev}`
      },
    }),
    history: action({
      signature: 'ref.history(name, limit?)',
      fields: { name: field.name, limit: v.optional(field.count(10_000), 20) },
      logged: ['name', 'limit'],
      effect: 'read',
      run: ({ store }, { name, limit }) =>
        bounded(
          store.refs
            .history(name, limit)
            .map(
              (move) =>
                `rev ${move.rev} ${move.at} ${move.actor} ${move.from ?? '(new)'} -> ${move.to ?? '(discarded)'}${move.note ? ` ${move.note}` : ''}`,
            )
            .join('\n'),
          'Ask for fewer with limit.',
        ),
    }),
  },
}
