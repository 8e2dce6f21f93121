import { encodePath, type Store } from '@reve/content-store'
import { once } from 'node:events'
import { GitError } from './errors.ts'
import { failed, type GitSession } from './git.ts'
import type { Notes } from './notes.ts'
import type { Person } from './person.ts'

/** The commit is made under this name, then its branch is moved and the name removed. */
export const exportRef = 'refs/reve/export'

/** What a commit says. `seconds`: of the committer's and author's time, UTC. */
export type CommitText = {
  readonly author: Person
  readonly committer: Person
  readonly seconds: number
  readonly message: string
  readonly parent: string | undefined
}

type Leaf = { readonly path: Buffer; readonly mode: string; readonly id: string }

/**
 * Writes a tree of the store as one commit at `exportRef`, through git fast-import: no index, nothing checked out.
 *
 * @returns the commit.
 */
export async function exportTree(
  git: GitSession,
  dir: string,
  tree: string,
  store: Store,
  text: CommitText,
  notes: Notes,
): Promise<string> {
  const args = ['fast-import', '--quiet', '--done', '--force', '--date-format=raw']
  const call = git.stream(dir, args)
  call.stdout.resume()
  const write = async (data: string | Uint8Array): Promise<void> => {
    if (!call.stdin.write(data)) await Promise.race([once(call.stdin, 'drain'), call.ended])
  }
  const marks = new Map<string, number>()
  for (const { mode, id } of leavesOf(store, tree, notes)) {
    if (mode === '160000' || marks.has(id)) continue
    marks.set(id, marks.size + 1)
    await write(`blob\nmark :${marks.size}\ndata ${store.blobSize(id)}\n`)
    for (const piece of store.readBlobPieces(id)) await write(piece)
    await write('\n')
  }
  await writeCommit(write, text)
  for (const { path, mode, id } of leavesOf(store, tree, undefined)) {
    const mark = marks.get(id)
    const data = mode === '160000' ? id : `:${mark}`
    await write(Buffer.concat([Buffer.from(`M ${mode} ${data} `), quoted(path), Buffer.from('\n')]))
  }
  await write('\ndone\n')
  call.stdin.end()
  const { code, stderr } = await call.ended
  if (code !== 0) throw failed(args, { code, stderr })
  return git.text(dir, ['rev-parse', '--verify', exportRef])
}

async function writeCommit(write: (data: string | Uint8Array) => Promise<void>, text: CommitText): Promise<void> {
  const stamp = (person: Person): string => `${person.name} <${person.email}> ${text.seconds} +0000`
  const message = Buffer.from(text.message.endsWith('\n') ? text.message : `${text.message}\n`)
  await write(
    `commit ${exportRef}\nauthor ${stamp(text.author)}\ncommitter ${stamp(text.committer)}\ndata ${message.length}\n`,
  )
  await write(message)
  await write(`${text.parent === undefined ? '' : `from ${text.parent}\n`}deleteall\n`)
}

/** Everything of a tree that git can hold, in the order of the store. */
function* leavesOf(
  store: Store,
  tree: string,
  notes: Notes | undefined,
  above: Buffer = Buffer.alloc(0),
): Generator<Leaf> {
  const entries = store.readTree(tree)
  if (entries.length === 0 && above.length > 0) notes?.add('empty_directory_dropped', encodePath(above.subarray(0, -1)))
  for (const { name, kind, id } of entries) {
    const path = Buffer.concat([above, name])
    switch (kind) {
      case 'directory':
        yield* leavesOf(store, id, notes, Buffer.concat([path, Buffer.from('/')]))
        break
      case 'file':
        yield { path, mode: '100644', id }
        break
      case 'executable':
        yield { path, mode: '100755', id }
        break
      case 'symlink':
        yield { path, mode: '120000', id }
        break
      case 'gitlink':
        yield { path, mode: '160000', id }
        break
      default:
        throw new GitError(
          'unsupported_tree',
          `${encodePath(path)} is of a kind that git does not hold: ${String(kind satisfies never)}`,
        )
    }
  }
}

/** A path as fast-import takes it, whatever its bytes are. */
function quoted(path: Uint8Array): Buffer {
  const parts = [...path].map((byte) =>
    byte < 0x20 || byte >= 0x7f || byte === 0x22 || byte === 0x5c
      ? `\\${byte.toString(8).padStart(3, '0')}`
      : String.fromCharCode(byte),
  )
  return Buffer.from(`"${parts.join('')}"`, 'latin1')
}
