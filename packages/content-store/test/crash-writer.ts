import { openStore } from '../src/index.ts'

/** A child that writes until it is killed: each acknowledged move is one line on standard output. */
const root = process.argv[2] ?? ''
const store = await openStore(root)
const actor = 'writer'
if (store.refs.find('main') === undefined) store.refs.create('main', store.emptyTree, { actor })
for (let step = 0; ; step++) {
  const ref = store.refs.get('main')
  const size = step % 3 === 0 ? 150_000 : 100
  const content = Buffer.alloc(size, `${ref.rev} `)
  const next =
    step % 4 === 3
      ? store.editTree(
          ref.tree,
          Array.from(
            { length: 40 },
            (_, index) =>
              ({
                path: `many/${ref.rev % 20}/${index}`,
                set: { kind: 'file', id: store.putBlob(Buffer.from(`${ref.rev}-${index}`)) },
              }) as const,
          ),
        )
      : store.fs.write(ref.tree, `d${step % 7}/f${step % 5}`, content).tree
  const moved = store.refs.move('main', { actor, expectedTree: ref.tree, expectedRev: ref.rev, newTree: next })
  process.stdout.write(`${moved.rev} ${moved.tree}\n`)
}
