import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore, type Store, type TreeId } from '../src/index.ts'

/** A child that writes until it is killed, or for so many steps: each acknowledged move is one line on standard output. */
const store = await openStore(process.argv[2] ?? '')
const folder = process.argv[3] ?? mkdtempSync(join(tmpdir(), 'content-store-'))
const steps = Number(process.argv[4] ?? Number.POSITIVE_INFINITY)
const actor = 'writer'
if (store.refs.find('main') === undefined) {
  store.refs.create('main', store.emptyTree, { actor })
  store.branches.create('side', 'main', { actor })
}

/** Many small files in one transaction. */
const bulk = (tree: TreeId, rev: number): TreeId =>
  store.transaction(() =>
    store.editTree(
      tree,
      Array.from({ length: 40 }, (_, index) => {
        const id = store.putBlob(Buffer.from(`${rev}-${index}`))
        return { path: `many/${rev % 20}/${index}`, set: { kind: 'file' as const, id } }
      }),
    ),
  )

/** A folder with new files, small and large, read into the store. */
async function captured(store: Store, tree: TreeId, rev: number): Promise<TreeId> {
  const slot = join(folder, 'slot')
  rmSync(slot, { recursive: true, force: true })
  await store.layout(tree, slot)
  for (let index = 0; index < 20; index++)
    writeFileSync(join(slot, `file-${index}`), Buffer.alloc(index * 9000, `${rev} ${index} `))
  return (await store.capture(slot, { base: tree })).tree
}

for (let step = 0; step < steps; step++) {
  const ref = store.refs.get('main')
  const move = (newTree: TreeId): void => {
    const moved = store.refs.move('main', { actor, expectedTree: ref.tree, expectedRev: ref.rev, newTree })
    process.stdout.write(`${moved.rev} ${moved.tree}\n`)
  }
  switch (step % 5) {
    case 0:
      move(store.fs.write(ref.tree, `d${ref.rev % 7}/f${ref.rev % 5}`, Buffer.alloc(150_000, `${ref.rev} `)).tree)
      break
    case 1:
      move(bulk(ref.tree, ref.rev))
      break
    case 2:
      move(await captured(store, ref.tree, ref.rev))
      break
    case 3: {
      const side = store.refs.get('side')
      const newTree = store.fs.write('side', 'side', `${side.rev}\n`).tree
      store.refs.move('side', { actor, expectedTree: side.tree, newTree })
      const merged = await store.branches.merge('main', 'side', { actor })
      process.stdout.write(`${merged.into.rev} ${merged.into.tree}\n`)
      break
    }
    default:
      move(store.fs.write(ref.tree, 'small', `${ref.rev}`).tree)
  }
}
