import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, expect } from 'vitest'
import { openStore, type OpenOptions, type Store, StoreError, type StoreErrorCode, type TreeId } from '../src/index.ts'

const folders: string[] = []
const stores: Store[] = []

afterEach(() => {
  for (const store of stores.splice(0)) store.close()
})
afterAll(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
})

/** A folder that goes when the test file ends. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'content-store-'))
  folders.push(folder)
  return folder
}

/** A store in a fresh folder (or in `root`), closed after the test. */
export async function temporaryStore(options: OpenOptions & { readonly root?: string } = {}): Promise<Store> {
  const { root = join(temporaryFolder(), 'kc'), ...rest } = options
  const store = await openStore(root, rest)
  stores.push(store)
  return store
}

export const act = { actor: 'tester' } as const

/** A tree of files from a plain object; a value that starts with `->` is a symbolic link, with `#!` an executable. */
export function treeOf(store: Store, files: Readonly<Record<string, string | Uint8Array>>): TreeId {
  return store.editTree(
    store.emptyTree,
    Object.entries(files).map(([path, content]) => {
      const link = typeof content === 'string' && content.startsWith('->')
      const kind = link ? 'symlink' : typeof content === 'string' && content.startsWith('#!') ? 'executable' : 'file'
      return { path, set: { kind, id: store.putBlob(Buffer.from(link ? content.slice(2) : content)) } }
    }),
  )
}

/** The plain object of a tree's files. */
export function filesOf(store: Store, tree: TreeId): Record<string, string> {
  const files: Record<string, string> = {}
  for (const entry of store.walk(tree)) {
    if (entry.kind === 'directory' || entry.kind === 'gitlink') continue
    files[entry.path] = (entry.kind === 'symlink' ? '->' : '') + store.readBlob(entry.id).toString()
  }
  return files
}

/** Expects a refusal with this code and gives it. */
export function refusal(code: StoreErrorCode, call: () => unknown): StoreError {
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(StoreError)
    if (!(error instanceof StoreError)) throw error
    expect(error.code).toBe(code)
    return error
  }
  throw new Error(`nothing was refused (${code} was expected)`)
}

/** As `refusal`, for a promise. */
export async function refusalOf(code: StoreErrorCode, promise: Promise<unknown>): Promise<StoreError> {
  let thrown: unknown
  try {
    await promise
  } catch (error) {
    thrown = error
  }
  return refusal(code, () => {
    if (thrown !== undefined) throw thrown
  })
}

/** Whether this machine has git, and what to print when a test is skipped without it. */
export const gitMissing = spawnSync('git', ['--version']).status !== 0
if (gitMissing) process.stderr.write('content-store: tests against git are skipped, git is not installed\n')

const gitEnvironment = {
  PATH: process.env['PATH'] ?? '',
  HOME: '/nonexistent',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_AUTHOR_NAME: 't',
  GIT_AUTHOR_EMAIL: 't@example.org',
  GIT_COMMITTER_NAME: 't',
  GIT_COMMITTER_EMAIL: 't@example.org',
  LC_ALL: 'C',
}

/** Runs git; the caller looks at the status. */
export function git(
  cwd: string,
  args: readonly string[],
  input: string | Uint8Array = '',
): { readonly status: number | null; readonly stdout: Buffer; readonly stderr: string } {
  const result = spawnSync('git', args, { cwd, input, env: gitEnvironment, maxBuffer: 1 << 28 })
  return { status: result.status, stdout: result.stdout, stderr: result.stderr.toString() }
}

/** Runs git and expects it to work; gives its output without the last newline. */
export function gitText(cwd: string, args: readonly string[], input: string | Uint8Array = ''): string {
  const result = git(cwd, args, input)
  if (result.status !== 0) throw new Error(`git ${args.join(' ')}: ${result.stderr}`)
  return result.stdout.toString().replace(/\n$/, '')
}
