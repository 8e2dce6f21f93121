import type { Tool, ToolOutput } from '@reve/harness'
import type { MicroVm } from '@reve/sandbox-microvm'
import * as v from 'valibot'
import { globMatcher } from './glob-pattern.ts'
import { createGrepParser, type GrepLine, ripgrepLineOf } from './grep-lines.ts'
import { createGrepResult } from './grep-result.ts'
import { complaintOf, guestScript, outputText, pathArgument, showName } from './guest.ts'
import { createPieces } from './pieces.ts'
import { spill } from './spill.ts'
import { builtin, failed } from './tool.ts'

/** Kept of what a program says on stderr; its stdout is read as it comes. */
const complaintBytes = 4096

/** Said below what was found all the same. */
const partly = (complaint: string): string => `[Not all was searched: ${complaint.split('\n', 1).join('')}]`

const folder = v.optional(v.pipe(v.string(), v.nonEmpty('must not be empty')), '.')
const whole = (least: number, most: number) =>
  v.pipe(
    v.number(),
    v.integer(),
    v.minValue(least, `must be at least ${least}`),
    v.maxValue(most, `must be at most ${most}`),
  )

/** `ls`: a folder's entries. */
export function lsTool(vm: MicroVm): Tool {
  return builtin({
    name: 'ls',
    description: 'List a folder (ls -la).',
    replay: 'safe',
    parameters: { path: { type: 'string', minLength: 1, description: 'Folder (default: the working directory)' } },
    required: [],
    schema: v.object({ path: folder }),
    run: async ({ path }, { signal }): Promise<ToolOutput> => {
      const script = `
if ls --version >/dev/null 2>&1; then exec ls -la --quoting-style=shell-escape --time-style=long-iso "$1"; fi
exec ls -laq "$1"`
      const result = await guestScript(vm, script, [pathArgument(path)], { signal })
      const found = outputText(result.stdout).trimEnd()
      // Of a folder that was read in part, what was read counts.
      return found === ''
        ? failed(complaintOf(result) ?? 'ls showed nothing')
        : { content: await spill(vm, found, signal) }
    },
  })
}

/** Paths below $1, each ended by a NUL; $2 is not empty when ignored ones count too. */
const listScript = `
[ -e "$1" ] || { echo "no such folder: $1" >&2; exit 66; }
cd "$1" || exit
for fd in fd fdfind; do
  if command -v "$fd" >/dev/null; then
    exec "$fd" --hidden --exclude .git \${2:+--no-ignore} --color never --print0 ''
  fi
done
exec find . -mindepth 1 -name .git -prune -o -print0`

/** Time and mode of the paths in stdin below $1, each with its path and a NUL; nothing where stat cannot tell. */
const statScript = `cd "$1" && xargs -0 stat --printf '%.9Y %f %n\\0' -- 2>/dev/null; exit 0`

/** More of them are only counted. */
const mostFound = 20_000
const defaultPaths = 200

/** `glob`: paths that match a pattern, the newest first. */
export function globTool(vm: MicroVm): Tool {
  return builtin({
    name: 'glob',
    description:
      'Find files and folders by name, the newest first. "*.ts" finds names at any depth; a pattern with a slash counts from the folder: "src/**/*.{ts,tsx}". With fd in the image, what .gitignore names is left out.',
    replay: 'safe',
    parameters: {
      pattern: { type: 'string', minLength: 1, description: 'The pattern: *, ?, [a-z], {a,b}, ** for any folders' },
      path: { type: 'string', minLength: 1, description: 'Folder to look in (default: the working directory)' },
      ignored: { type: 'boolean', description: 'Take in what .gitignore names (default false)' },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: mostFound,
        description: `How many to show (default ${defaultPaths})`,
      },
    },
    required: ['pattern'],
    schema: v.object({
      pattern: v.pipe(v.string(), v.nonEmpty('must not be empty')),
      path: folder,
      ignored: v.optional(v.boolean(), false),
      limit: v.optional(whole(1, mostFound), defaultPaths),
    }),
    run: async ({ pattern, path, ignored, limit }, { signal }): Promise<ToolOutput> => {
      const { root, below } = rooted(path, pattern)
      const matches = globMatcher(below)
      if (typeof matches !== 'function') return failed(`pattern: ${matches.problem}`)
      const found: Uint8Array[] = []
      let count = 0
      const take = createPieces(0, (piece) => {
        const name = bare(piece)
        if (!matches(outputText(name)) || ++count > mostFound) return
        found.push(Uint8Array.from(name))
      })
      const options = { signal, maxOutputBytes: complaintBytes, onStdout: take }
      const listed = await guestScript(vm, listScript, [pathArgument(root), ignored ? 'ignored' : ''], options)
      // A folder that may not be read hides no other.
      const complaint = complaintOf(listed)
      if (count === 0) return complaint === undefined ? { content: '(nothing found)' } : failed(complaint)
      const shown = (await newestFirst(vm, root, found, signal)).slice(0, limit)
      const more = count - shown.length
      const notes = [
        ...(more > 0 ? [`\n[${more} more. Use a narrower pattern or a higher limit.]`] : []),
        ...(complaint === undefined ? [] : [`\n${partly(complaint)}`]),
      ]
      return { content: await spill(vm, [...shown, ...notes].join('\n'), signal) }
    },
  })
}

/** The folder to look in and the pattern below it: one that is absolute says both. */
function rooted(path: string, pattern: string): { readonly root: string; readonly below: string } {
  if (!pattern.startsWith('/')) return { root: path, below: pattern }
  const plain = /^\/(?:[^*?[{\\/]+\/)*/.exec(pattern)?.[0] ?? '/'
  const below = pattern.slice(plain.length)
  // What is left is no name at any depth.
  return { root: plain, below: below.includes('/') ? below : `./${below}` }
}

const slash = 0x2f
/** Without the `./` that one program and the `/` that another adds. */
function bare(name: Uint8Array): Uint8Array {
  const start = name[0] === 0x2e && name[1] === slash ? 2 : 0
  return name.subarray(start, name.at(-1) === slash ? -1 : undefined)
}

/** The paths as they are shown, folders with a `/` at their end. */
async function newestFirst(
  vm: MicroVm,
  root: string,
  names: readonly Uint8Array[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const stdin = Buffer.concat(names.flatMap((name) => [Buffer.from('./'), name, Buffer.of(0)]))
  const facts = new Map<string, { readonly time: number; readonly isFolder: boolean }>()
  const take = createPieces(0, (piece) => {
    // Names are bytes: latin1 keeps each as it is.
    const [, time, mode = '', name = ''] =
      /^([\d.-]+) ([\da-f]+) \.\/(.*)$/s.exec(Buffer.from(piece).toString('latin1')) ?? []
    facts.set(name, { time: Number(time), isFolder: (Number.parseInt(mode, 16) & 0xf000) === 0x4000 })
  })
  await guestScript(vm, statScript, [pathArgument(root)], {
    signal,
    stdin,
    maxOutputBytes: complaintBytes,
    onStdout: take,
  })
  const prefix = root === '.' ? '' : `${root.replace(/\/+$/, '')}/`
  return names
    .map((name) => {
      const { time = 0, isFolder = false } = facts.get(Buffer.from(name).toString('latin1')) ?? {}
      const shown = Buffer.concat([Buffer.from(prefix), name, Buffer.from(isFolder ? '/' : '')])
      return { time, shown: showName(shown) }
    })
    .toSorted((one, other) => other.time - one.time || (one.shown < other.shown ? -1 : 1))
    .map(({ shown }) => shown)
}

/** $1 pattern, $2 path, $3 lines around, then flags: `i` ignore case, `F` a plain text, `u` ignored files too. */
const grepScript = `
[ -e "$2" ] || { echo "no such file or folder: $2" >&2; exit 66; }
has() { case $flags in *$1*) return 0;; esac; return 1; }
pattern=$1 path=$2 context=$3 flags=$4
if command -v rg >/dev/null; then
  set -- --no-config --json --hidden --glob '!.git' --sort path --context "$context"
  if has i; then set -- "$@" --ignore-case; fi
  if has F; then set -- "$@" --fixed-strings; fi
  if has u; then set -- "$@" --no-ignore; fi
  echo rg
  exec rg "$@" -e "$pattern" -- "$path"
fi
# In UTF-8 it takes a text in another encoding for a binary file.
export LC_ALL=C
# 1: it knows these options and finds nothing.
knows() { : | grep "$@" x 2>/dev/null; [ $? -eq 1 ]; }
if has F && knows -FZ; then kind=-F
elif knows -PZ; then kind=-P
elif knows -EZ; then kind=-E
else echo "this image has neither ripgrep nor GNU grep; search with bash (grep -rn)" >&2; exit 66
fi
set -- -rnHIZ --exclude-dir=.git --color=never -C "$context" "$kind"
if has i; then set -- "$@" -i; fi
echo grep
exec grep "$@" -e "$pattern" -- "$path"`

const defaultMatches = 100

/** `grep`: lines that match a regular expression. */
export function grepTool(vm: MicroVm): Tool {
  return builtin({
    name: 'grep',
    description:
      'Search file contents by a regular expression. Shows path:line:text. Binary files are left out and, with ripgrep in the image, what .gitignore names. Example: {"pattern": "function \\\\w+Tool", "glob": "*.ts", "context": 2}',
    replay: 'safe',
    parameters: {
      pattern: { type: 'string', minLength: 1, description: 'The regular expression' },
      path: { type: 'string', minLength: 1, description: 'File or folder (default: the working directory)' },
      glob: { type: 'string', minLength: 1, description: 'Only in files that match: *.ts, src/**/*.py' },
      ignore_case: { type: 'boolean', description: 'Default false' },
      literal: { type: 'boolean', description: 'The pattern is a plain text (default false)' },
      context: { type: 'integer', minimum: 0, maximum: 20, description: 'Lines to show around each match (default 0)' },
      ignored: { type: 'boolean', description: 'Take in what .gitignore names (default false)' },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: 1000,
        description: `Matching lines to show (default ${defaultMatches})`,
      },
      offset: { type: 'integer', minimum: 1, description: 'First matching line to show, from 1 (default 1)' },
    },
    required: ['pattern'],
    schema: v.object({
      pattern: v.pipe(v.string(), v.nonEmpty('must not be empty')),
      path: folder,
      glob: v.optional(v.pipe(v.string(), v.nonEmpty('must not be empty'))),
      ignore_case: v.optional(v.boolean(), false),
      literal: v.optional(v.boolean(), false),
      context: v.optional(whole(0, 20), 0),
      ignored: v.optional(v.boolean(), false),
      limit: v.optional(whole(1, 1000), defaultMatches),
      offset: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1, 'must be at least 1')), 1),
    }),
    run: async (args, { signal }): Promise<ToolOutput> => {
      const { pattern, path, context } = args
      const matches = args.glob === undefined ? () => true : globMatcher(args.glob)
      if (typeof matches !== 'function') return failed(`glob: ${matches.problem}`)
      const prefix = Buffer.byteLength(pathArgument(path).replace(/\/*$/, '/'))
      const isMeant = (file: Uint8Array): boolean =>
        args.glob === undefined ||
        matches(outputText(file.length > prefix ? file.subarray(prefix) : file.subarray(file.lastIndexOf(slash) + 1)))

      const result = createGrepResult(args)
      const enough = new AbortController()
      const take = (line: GrepLine): void => {
        if (enough.signal.aborted || !isMeant(line.path)) return
        if (!result.add(line)) enough.abort()
      }
      const flags = `${args.ignore_case ? 'i' : ''}${args.literal ? 'F' : ''}${args.ignored ? 'u' : ''}`
      const found = await guestScript(vm, grepScript, [pattern, pathArgument(path), String(context), flags], {
        signal: AbortSignal.any([signal, enough.signal]),
        maxOutputBytes: complaintBytes,
        onStdout: createPieces(0x0a, searchOutput(take)),
      })
      const text = result.text()
      // 1: nothing was found. Anything else went wrong in part, and what was found all the same counts.
      const wrong = enough.signal.aborted || found.exitCode === 1 ? undefined : complaintOf(found)
      if (wrong === undefined) return { content: text }
      return text.startsWith('(nothing found') ? failed(wrong) : { content: `${text}\n\n${partly(wrong)}` }
    },
  })
}

/** Pieces of the script's output: the program's name first, then its lines. */
function searchOutput(take: (line: GrepLine) => void): (piece: Uint8Array) => void {
  let parse: ((piece: Uint8Array) => void) | undefined
  return (piece) => {
    if (parse !== undefined) return parse(piece)
    const fromRipgrep = (json: Uint8Array): void => {
      const line = ripgrepLineOf(json)
      if (line !== undefined) take(line)
    }
    parse = outputText(piece) === 'rg' ? fromRipgrep : createGrepParser(take)
  }
}
