import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { importsOf, root, sourcesOf } from './sources.ts'

/**
 * A command that a model wrote runs in the microVM and nowhere else. What can start a program on the host is therefore
 * kept in one file a package, which lists each program with its reason, and this test knows the lists by heart: a new
 * program is a decision that shows up here.
 */
const reve: Readonly<Record<string, readonly string[]>> = {
  'packages/base': [],
  'packages/session-log': [],
  'packages/providers': [],
  'packages/harness': [],
  'packages/lua-runtime': [],
  'packages/agent': [],
  'packages/sandbox-microvm': [
    'apt-cache',
    'apt-get',
    'bwrap',
    'cp',
    'dpkg-deb',
    'mke2fs',
    'mmdebstrap',
    'node',
    'qemu-system-x86_64',
    'setpriv',
    'unshare',
    'xz',
  ],
  'apps/reve-cli': ['npm', 'sh', 'stty'],
}

/** kc's actions run commands by design, in a sandbox; everything else that it starts is git, or a guard around it. */
const kc: Readonly<Record<string, readonly string[]>> = {
  'packages/content-store': ['git'],
  'packages/git-bridge': ['git', 'sh'],
  'packages/action-runner': ['action', 'pipes'],
  'packages/mcp-server': [],
  'apps/kc-server': [],
}

/** Files that hold a program's text for one of the listed programs, and start nothing themselves. */
const texts: readonly string[] = ['packages/sandbox-microvm/src/qemu/box.ts']

const spawners = new Set([
  'child_process',
  'node:child_process',
  'cluster',
  'node:cluster',
  'execa',
  'zx',
  'cross-spawn',
  'node-pty',
  'tinyexec',
])

async function listedPrograms(folder: string): Promise<readonly string[]> {
  const file = join(root, folder, 'src/host-process.ts')
  if (!existsSync(file)) return []
  const module: { readonly HOST_PROGRAMS?: Readonly<Record<string, string>> } = await import(pathToFileURL(file).href)
  for (const [program, reason] of Object.entries(module.HOST_PROGRAMS ?? {})) expect(reason, program).toMatch(/\w+ \w+/)
  return Object.keys(module.HOST_PROGRAMS ?? {})
}

describe.each(Object.entries({ ...reve, ...kc }))('%s', (folder, programs) => {
  test('starts programs in host-process.ts alone', () => {
    const others = sourcesOf(`${folder}/src`)
      .filter(({ path }) => path !== `${folder}/src/host-process.ts`)
      .filter(({ path }) => !texts.includes(path))
      // A type starts nothing.
      .filter(({ text }) =>
        importsOf(text.replaceAll(/^import type .*$/gm, '')).some((specifier) => spawners.has(specifier)),
      )
      .map(({ path }) => path)
    expect(others).toEqual([])
  })

  test('starts only the programs that are known here', async () => {
    expect((await listedPrograms(folder)).toSorted()).toEqual([...programs].toSorted())
  })
})

test("reve's packages hold no other way to a program", () => {
  const ways =
    /process\.binding|process\.dlopen|getBuiltinModule|_linkedBinding|\bshell:\s*(true|['"])|new Worker\([^)]*eval/
  const found = Object.keys(reve)
    .flatMap((folder) => sourcesOf(`${folder}/src`))
    .filter(({ text }) => ways.test(text))
    .map(({ path }) => path)
  expect(found).toEqual([])
})
