import { chmod, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/**
 * The environment of somebody who has `reve`, `kc` and the packages: the programs are this checkout's sources, and `npm install` of
 * a package of ours puts a link to it into `node_modules`. What npm really does is what `npm run pack:test` looks at.
 *
 * @returns variables for a child process.
 */
export async function checkoutPrograms(): Promise<Readonly<Record<string, string>>> {
  const folder = await mkdtemp(join(tmpdir(), 'programs-'))
  const node = `exec ${quoted(process.execPath)} --conditions=@reve/source`
  const programs: Readonly<Record<string, string>> = {
    node: `${node} "$@"`,
    reve: `${node} ${quoted(join(root, 'apps/reve-cli/src/main.ts'))} "$@"`,
    kc: `${node} ${quoted(join(root, 'apps/kc-server/src/main.ts'))} "$@"`,
    npm: `${node} ${quoted(fileURLToPath(new URL('link-packages.ts', import.meta.url)))} "$@"`,
  }
  for (const [name, command] of Object.entries(programs)) {
    await writeFile(join(folder, name), `#!/bin/sh\n${command}\n`)
    await chmod(join(folder, name), 0o755)
  }
  return { PATH: [folder, process.env['PATH'] ?? ''].join(delimiter) }
}

const quoted = (word: string): string => `'${word.replaceAll("'", String.raw`'\''`)}'`
