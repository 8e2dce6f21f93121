// node main.mts FOLDER [STORE]: keeps a version of a folder, and says what changed since the last one.
import { resolve } from 'node:path'
import { openStore } from '@reve/content-store'

const [folder, root = 'versions'] = process.argv.slice(2)
if (folder === undefined) {
  console.error('usage: node main.mts FOLDER [STORE]')
  process.exit(2)
}
const name = 'latest'
const act = { actor: 'backup' }

await using store = await openStore(resolve(root))
const before = store.refs.find(name)
const { tree, skipped } = await store.capture(folder, { gitignore: true })
for (const { path, why } of skipped) console.error(`left out: ${path} (${why})`)

// The ref moves only from where it was seen: two of these at once cannot lose each other's version.
if (before === undefined) store.refs.create(name, tree, act)
else if (before.tree !== tree) store.refs.move(name, { ...act, expectedTree: before.tree, newTree: tree })

const { files } = await store.fs.diff(before?.tree ?? store.emptyTree, tree)
for (const { change, path } of files) console.log(`${change.padEnd(8)} ${path}`)
console.log(`version ${store.refs.get(name).rev}: ${tree.slice(0, 12)}, ${files.length} changed`)
