import { cp, mkdtemp, readdir, readFile, realpath, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { checkoutPrograms } from '../../scripts/checkout-programs.ts'
import { followPage, type FollowOptions } from '../../scripts/follow-page.ts'
import { whyNoVm } from '../../scripts/vm-here.ts'

const examples = fileURLToPath(new URL('..', import.meta.url))
const names = (await readdir(examples, { withFileTypes: true }))
  .filter((entry) => entry.isDirectory() && !['node_modules', 'test'].includes(entry.name))
  .map(({ name }) => name)
const programs = await checkoutPrograms()
const noVm = await whyNoVm()
if (noVm !== undefined) process.stderr.write(`no microVM boots here: the examples that need one are not run: ${noVm}\n`)

/**
 * Follows the README of an example in a copy of the examples, as somebody does who has copied them.
 *
 * @returns the copied folder.
 */
async function follow(name: string, options: Omit<FollowOptions, 'cwd'> = {}): Promise<string> {
  const copy = await realpath(await mkdtemp(join(tmpdir(), 'examples-')))
  for (const folder of names) await cp(join(examples, folder), join(copy, folder), { recursive: true })
  for (const [from, to] of Object.entries(options.here ?? {}))
    for (const entry of await readdir(copy, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue
      const path = join(entry.parentPath, entry.name)
      await writeFile(path, (await readFile(path, 'utf8')).replaceAll(from, to))
    }
  const cwd = join(copy, name)
  const env = { ...programs, ...options.env }
  expect(await followPage(new URL(`../${name}/README.md`, import.meta.url), { ...options, cwd, env })).toBeGreaterThan(
    0,
  )
  return cwd
}

/** A computer's data directory and port that nobody else has. */
async function computerHere(): Promise<Omit<FollowOptions, 'cwd'>> {
  const port = await freePort()
  const root = join(await mkdtemp(join(tmpdir(), 'kc-')), 'kc')
  return { env: { KC_ROOT: root, KC_PORT: String(port) }, here: { '127.0.0.1:7333': `127.0.0.1:${port}` } }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('a server without a port')
  return address.port
}

// One of them waits for a minute to pass; the others need not wait for it.
describe.concurrent('an example does what its README says:', { timeout: 300_000 }, () => {
  test('harness', async () => {
    const text = await readFile(join(await follow('harness'), 'main.mts'), 'utf8')
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(30)
  })

  test('store', () => follow('store'))

  test('mcp-client', async () => follow('mcp-client', await computerHere()))

  test('heartbeat', () => follow('heartbeat'))

  test('kc-agent', async () => follow('kc-agent', await computerHere()))

  test.skipIf(noVm !== undefined)('tool-agent', () => follow('tool-agent'))
})

test('each folder is in the list of the examples', async () => {
  const list = await readFile(join(examples, 'README.md'), 'utf8')
  expect([...list.matchAll(/^\| \[`([\w-]+)`\]\(\1\)/gm)].map(([, name]) => name).toSorted()).toEqual(names.toSorted())
})
