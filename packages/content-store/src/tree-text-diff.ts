import { formatPatch, structuredPatch } from 'diff'
import { Pace } from './host-dir.ts'
import { objectKind, type Objects } from './objects.ts'
import { encodePath } from './path.ts'
import { isBinary } from './text-view.ts'
import { diffTrees } from './tree-diff.ts'
import type { Trees } from './trees.ts'
import type { StorePath, Target, TreeChange, TreeId } from './types.ts'

export type DiffOptions = {
  /** Lines around each change (default 3). */
  readonly context?: number | undefined
  /** Most characters of unified text (default 60,000); every changed file is listed all the same. */
  readonly maxCharacters?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** How a path differs. `mode`: only the executable bit; `kind`: a file became a link, and the like. */
export type ChangeKind = 'added' | 'removed' | 'changed' | 'mode' | 'kind'

export type FileDiff = TreeChange & {
  readonly change: ChangeKind
  readonly binary: boolean
  /** Lines added and removed; null where lines were not compared. */
  readonly added: number | null
  readonly removed: number | null
}

export type DiffResult = {
  readonly a: TreeId
  readonly b: TreeId
  readonly files: readonly FileDiff[]
  /** Unified text of all files, in git's form. */
  readonly text: string
  /** Files whose text was left out because the limit was reached. */
  readonly omitted: readonly StorePath[]
}

/** Beyond this many differing lines, or bytes, two texts are said to differ without comparing them line by line. */
const maxEditLength = 4000
const maxTextBytes = 4 << 20

type Parts = { readonly trees: Trees; readonly objects: Objects }

/** What differs between two trees. */
export async function unifiedDiff(parts: Parts, a: TreeId, b: TreeId, options: DiffOptions = {}): Promise<DiffResult> {
  const pace = new Pace(options.signal)
  const files: FileDiff[] = []
  const omitted: StorePath[] = []
  const texts: string[] = []
  let room = options.maxCharacters ?? 60_000
  for (const change of diffTrees(parts.trees, a, b)) {
    await pace.step(20)
    const { file, text } = diffFile(parts, change, options.context ?? 3, room > 0)
    files.push(file)
    if (text === null || text.length > room) {
      omitted.push(change.path)
      // What does not fit ends the text: a shorter one further down would hide that something is missing.
      room = 0
      continue
    }
    texts.push(text)
    room -= text.length
  }
  return { a, b, files, text: texts.join(''), omitted }
}

const modes = {
  file: '100644',
  executable: '100755',
  symlink: '120000',
  directory: '040000',
  gitlink: '160000',
} as const

const isFile = (target: Target | null): boolean => target?.kind === 'file' || target?.kind === 'executable'

function changeKind({ before, after }: TreeChange): ChangeKind {
  if (before === null) return 'added'
  if (after === null) return 'removed'
  if (isFile(before) && isFile(after)) return before.id === after.id ? 'mode' : 'changed'
  return before.kind === after.kind ? 'changed' : 'kind'
}

function diffFile(
  parts: Parts,
  change: TreeChange,
  context: number,
  withText: boolean,
): { readonly file: FileDiff; readonly text: string | null } {
  const { path, before, after } = change
  const kind = changeKind(change)
  const head = [`diff --git a/${path} b/${path}`]
  if (before === null) head.push(`new file mode ${modes[after?.kind ?? 'file']}`)
  else if (after === null) head.push(`deleted file mode ${modes[before.kind]}`)
  else if (before.kind !== after.kind) head.push(`old mode ${modes[before.kind]}`, `new mode ${modes[after.kind]}`)
  const header = `${head.join('\n')}\n`
  const done = (binary: boolean, added: number | null, removed: number | null, text: string | null) => ({
    file: { ...change, change: kind, binary, added, removed },
    text,
  })
  if (kind === 'mode' || (before ?? after)?.kind === 'directory') return done(false, 0, 0, header)
  if (!withText) return done(false, null, null, null)
  const old = content(parts, before)
  const now = content(parts, after)
  if (old === 'large' || now === 'large')
    return done(false, null, null, `${header}The files differ and are too large to compare by lines.\n`)
  if (isBinary(old) || isBinary(now))
    return done(true, null, null, `${header}Binary files differ (${old.length} and ${now.length} bytes).\n`)
  const patch = structuredPatch(`a/${path}`, `b/${path}`, old.toString('utf8'), now.toString('utf8'), '', '', {
    context,
    maxEditLength,
  })
  if (patch === undefined)
    return done(false, null, null, `${header}The files differ in more than ${maxEditLength} lines.\n`)
  const lines = patch.hunks.flatMap((hunk) => hunk.lines)
  const added = lines.filter((line) => line.startsWith('+')).length
  const removed = lines.filter((line) => line.startsWith('-')).length
  if (patch.hunks.length === 0) return done(false, 0, 0, header)
  const body = formatPatch({
    ...patch,
    oldFileName: before === null ? '/dev/null' : `a/${path}`,
    newFileName: after === null ? '/dev/null' : `b/${path}`,
  })
  return done(false, added, removed, header + body.replace(/^=+\n/, ''))
}

function content(parts: Parts, target: Target | null): Buffer | 'large' {
  if (target === null || target.kind === 'directory') return Buffer.alloc(0)
  if (target.kind === 'gitlink') return Buffer.from(`Subproject commit ${target.id}\n`)
  if (parts.objects.size(target.id) > maxTextBytes) return 'large'
  const bytes = parts.objects.read(target.id, objectKind.blob)
  return target.kind === 'symlink' ? Buffer.from(encodePath(bytes)) : bytes
}
