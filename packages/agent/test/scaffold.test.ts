import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openAgent, scaffold } from '../src/index.ts'

const hosts = { debian: ['mirror.example', 'security.example'], npm: ['registry.example'] }
const folder = () => mkdtemp(join(tmpdir(), 'scaffold-'))
const host = (root: string) => ({
  env: () => undefined,
  vm: { cacheDir: join(root, 'cache'), runtimeDir: '/tmp/none' },
})

const filesBelow = async (root: string): Promise<readonly string[]> =>
  (await readdir(root, { recursive: true, withFileTypes: true }))
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1) + (entry.isDirectory() ? '/' : ''))
    .toSorted()

test("makes exactly the agent directory's files and folders, and nothing beside them", async () => {
  const base = await folder()
  const report = await scaffold(join(base, 'agent'), hosts)
  expect(await readdir(base)).toEqual(['agent'])
  expect(await filesBelow(report.root)).toEqual(
    [
      '.gitignore',
      'agent.lua',
      'channels/',
      'instructions.md',
      'models.yml',
      'sandbox.lua',
      'tools/',
      'tools/example.lua',
      'workspace/',
      'workspace/AGENTS.md',
      'workspace/HEARTBEAT.yml',
      'workspace/KNOWLEDGE.md',
      'workspace/SOUL.md',
      'workspace/knowledge/',
      'workspace/notes/',
      'workspace/skills/',
    ].toSorted(),
  )
  expect(report.entries.map(({ path }) => path)).toEqual([
    'agent.lua',
    'sandbox.lua',
    'tools/example.lua',
    'instructions.md',
    'models.yml',
    'workspace/AGENTS.md',
    'workspace/SOUL.md',
    'workspace/KNOWLEDGE.md',
    'workspace/HEARTBEAT.yml',
    '.gitignore',
  ])
  expect(new Set(report.entries.map(({ state }) => state))).toEqual(new Set(['created']))
})

test('again: unchanged, edited and kept, created when missing', async () => {
  const root = await folder()
  await scaffold(root, hosts)
  await writeFile(join(root, 'agent.lua'), 'agent { model = "mine/model" }\n')
  await rm(join(root, 'models.yml'))
  const { entries } = await scaffold(root, hosts)
  const state = Object.fromEntries(entries.map((entry) => [entry.path, entry.state]))
  expect(state).toMatchObject({ 'agent.lua': 'changed', 'models.yml': 'created', 'sandbox.lua': 'unchanged' })
  expect(await readFile(join(root, 'agent.lua'), 'utf8')).toBe('agent { model = "mine/model" }\n')
})

test('what it makes loads, and lists the hosts of this machine', async () => {
  const root = await folder()
  await scaffold(root, hosts)
  await using agent = await openAgent(root, host(root))
  expect(agent.info).toMatchObject({ model: 'openai/gpt-5.6-luna', thinking: 'low', tools: [{ name: 'example' }] })
  expect(agent.info.policy).toMatchObject({ image: 'debian:trixie-slim', cpus: 2, memory: 2048 })
  expect(agent.info.policy.allow).toEqual(
    expect.arrayContaining(['github.com', 'mirror.example', 'security.example', 'registry.example']),
  )
})

test('a machine without a mirror or npm is said in the list, which still loads', async () => {
  const root = await folder()
  await scaffold(root, { debian: [], npm: [] })
  expect(await readFile(join(root, 'sandbox.lua'), 'utf8')).toContain(
    '(no Debian mirror was found on the machine that ran reve init)',
  )
  await using agent = await openAgent(root, host(root))
  expect(agent.info.policy.allow).toContain('github.com')
})

test('writes nothing through a link, and says where it stopped', async () => {
  const base = await folder()
  const root = join(base, 'agent')
  await mkdir(root)
  await mkdir(join(base, 'elsewhere'))
  await symlink(join(base, 'elsewhere'), join(root, 'workspace'))
  await expect(scaffold(root, hosts)).rejects.toMatchObject({
    code: 'io',
    message: expect.stringContaining(join(root, 'workspace')),
  })
  expect(await readdir(join(base, 'elsewhere'))).toEqual([])
})

test('a file in the place of the folder is refused', async () => {
  const base = await folder()
  await writeFile(join(base, 'file'), '')
  await expect(scaffold(join(base, 'file'), hosts)).rejects.toMatchObject({ code: 'io' })
})

test('a file that the user replaced by a link is theirs: kept, not followed, and the rest is completed', async () => {
  const root = await folder()
  const elsewhere = join(await folder(), 'shared.md')
  await writeFile(elsewhere, 'shared instructions')
  await symlink(elsewhere, join(root, 'instructions.md'))
  const { entries } = await scaffold(root, hosts)
  expect(entries.find(({ path }) => path === 'instructions.md')?.state).toBe('changed')
  expect(entries.at(-1)).toEqual({ path: '.gitignore', state: 'created' })
  expect(await readFile(elsewhere, 'utf8')).toBe('shared instructions')
})
