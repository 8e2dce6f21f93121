import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { mustRun } from './machine.ts'

type Manifest = {
  readonly name: string
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
}

const OWN = '@reve/sandbox-microvm'

/** Not needed to run a package, and large. */
const LEFT_OUT = /\/(?:node_modules|dist\/\.tsbuildinfo|test|deps|\.turbo)$/

/**
 * A disk with this package as it stands in the working tree, all that it imports, and the Node that runs us. A plain tree:
 * each package once, found as an installation's own would be.
 */
export async function writePayload(disk: string, folder: string, busybox: string): Promise<void> {
  const here = join(import.meta.dirname, '..')
  await mkdir(join(folder, 'node_modules'), { recursive: true })
  for (const [name, from] of [[OWN, here] as const, ...(await closure(here))]) {
    // Node strips no types below a `node_modules`: what is ours is linked there, as in the working tree.
    const ours = name.startsWith('@reve/')
    const to = ours ? join('packages', name.slice('@reve/'.length)) : join('node_modules', name)
    await cp(from, join(folder, to), {
      recursive: true,
      dereference: true,
      filter: (path) => path === from || !LEFT_OUT.test(path),
    })
    if (!ours) continue
    await mkdir(join(folder, 'node_modules', '@reve'), { recursive: true })
    await symlink(join('..', '..', to), join(folder, 'node_modules', name))
  }
  await cp(process.execPath, join(folder, 'node'))
  await cp(busybox, join(folder, 'busybox'))
  await cp(join(import.meta.dirname, 'init'), join(folder, 'init'))
  await writeFile(disk, '')
  await mustRun('mke2fs', ['-q', '-F', '-t', 'ext4', '-O', '^metadata_csum', '-d', folder, disk, '2G'])
}

/** Every package that the one in `folder` needs at run time, by name, with where it lies. */
async function closure(folder: string): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  const visit = async (from: string): Promise<void> => {
    const manifest: Manifest = JSON.parse(await readFile(join(from, 'package.json'), 'utf8'))
    for (const name of Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })) {
      if (found.has(name)) continue
      const at = packageFolder(from, name)
      // An optional one for another system.
      if (at === undefined) continue
      found.set(name, at)
      await visit(at)
    }
  }
  await visit(folder)
  return found
}

function packageFolder(from: string, name: string): string | undefined {
  const paths = createRequire(join(from, 'package.json')).resolve.paths(name) ?? []
  for (const path of paths) {
    try {
      return dirname(createRequire(join(path, 'x')).resolve(`./${name}/package.json`))
    } catch (error) {
      if (!(error instanceof Error)) throw error
    }
  }
  return undefined
}
