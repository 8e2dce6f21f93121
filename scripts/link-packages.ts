// `npm install NAME...` of a reader who follows a page inside of this checkout: links in place of copies.
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const [command, ...names] = process.argv.slice(2)
if (command !== 'install' || names.length === 0) throw new Error('this npm knows "npm install NAME..." only')

const folders = new Map<string, string>()
for (const group of ['packages', 'apps'])
  for (const name of await readdir(join(root, group))) {
    const manifest: { readonly name: string } = JSON.parse(
      await readFile(join(root, group, name, 'package.json'), 'utf8'),
    )
    folders.set(manifest.name, join(root, group, name))
  }
for (const name of names) {
  // Packages of others are those that the examples have.
  const target = folders.get(name) ?? join(root, 'examples/node_modules', name)
  if (!existsSync(target)) throw new Error(`there is no ${name} in this checkout`)
  const link = join('node_modules', name)
  await mkdir(dirname(link), { recursive: true })
  if (!existsSync(link)) await symlink(target, link)
}
