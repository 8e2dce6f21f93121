import { createHash } from 'node:crypto'
import type { Tool, ToolOutput } from '@reve/harness'
import type { ExecResult, MicroVm } from '@reve/sandbox-microvm'
import * as v from 'valibot'
import { editText } from './edit-text.ts'
import { complaintOf, guestScript, outputText, pathArgument } from './guest.ts'
import { imageTypeOf } from './image-type.ts'
import { inTurn } from './in-turn.ts'
import { type FileLines, isText, linesOf, shownLines } from './shown-lines.ts'
import { shownCharacters } from './spill.ts'
import { builtin, failed } from './tool.ts'

/** Largest file that `edit` loads. */
const editableBytes = 16 << 20
/** Largest image that is shown: what the harness keeps of images, in base64. */
const imageBytes = 3_750_000
/** A file that is no larger is loaded whole and counted here; of another one only the lines that are asked for. */
const wholeBytes = 4 << 20
/** More than can be shown: a character has at most four bytes. */
const windowBytes = 4 * shownCharacters

// Each program that a script starts takes time, most of all on an emulated processor: they start few.

/** Prints the file, at most so many bytes of it; a path of no file is refused, in one word. */
const loadScript = `
[ -e "$1" ] || { echo missing >&2; exit 66; }
[ -d "$1" ] && { echo directory >&2; exit 66; }
[ -f "$1" ] || { echo special >&2; exit 66; }
[ -r "$1" ] || { echo unreadable >&2; exit 66; }
exec head -c "$2" "$1"`

/** Prints the asked lines on stdout; on stderr the number of lines and, when the last one is unfinished, a `+`. */
const linesScript = `
if [ -n "$3" ]; then tail -n "+$2" "$1" | head -n "$3"; else tail -n "+$2" "$1"; fi | head -c "$4"
wc -l <"$1" >&2
[ -n "$(tail -c 1 "$1" | tr '\\0' x)" ] && echo + >&2
exit 0`

/**
 * Replaces a file's contents from stdin whole or not at all, keeping its mode; a link's target is replaced, not the link. With a
 * second argument only if the file still has that SHA-256.
 */
const writeScript = `
set -eC
umask 022
f=$1
case $f in */) echo directory >&2; exit 66;; esac
if [ -L "$f" ]; then f=$(readlink -f "$f") || { echo loop >&2; exit 66; }; fi
if [ -d "$f" ]; then echo directory >&2; exit 66; fi
if [ -e "$f" ] && ! [ -f "$f" ]; then echo special >&2; exit 66; fi
if [ -n "$2" ] && command -v sha256sum >/dev/null; then
  now=$(sha256sum <"$f")
  [ "\${now%% *}" = "$2" ] || { echo changed >&2; exit 66; }
fi
d=\${f%/*}/
[ -d "$d" ] || mkdir -p "$d"
t=\${d}.reve-write.$$
: >"$t"
trap 'rm -f "$t"' EXIT
if [ -e "$f" ]; then cp -p "$f" "$t"; fi
cat >|"$t"
mv -f "$t" "$f"
trap - EXIT`

/** Why a script did not do its work, for the model; undefined when it did. */
function refusal(result: ExecResult, path: string): string | undefined {
  const complaint = complaintOf(result)
  switch (complaint) {
    case 'missing':
      return `no such file: ${path}`
    case 'directory':
      return `${path} is a directory; use ls`
    case 'special':
      return `${path} is not a regular file`
    case 'unreadable':
      return `${path} may not be read`
    case 'loop':
      return `${path} is a link that leads nowhere`
    case 'changed':
      return `${path} has changed meanwhile, nothing was written; read it again`
    default:
      return complaint === undefined ? undefined : `${path}: ${complaint}`
  }
}

const pathParameter = {
  type: 'string',
  minLength: 1,
  description: 'Path, relative to the working directory: src/main.ts',
} as const
const path = v.pipe(v.string(), v.nonEmpty('must not be empty'))

/** `read`: numbered lines of a text file, from `offset` (1-based), at most `limit`; or an image. */
export function readTool(vm: MicroVm): Tool {
  return builtin({
    name: 'read',
    description:
      'Read a text file as numbered lines, or look at an image (PNG, JPEG, GIF, WebP). offset and limit select a part of a long file; when more follows, the result says at which offset.',
    replay: 'safe',
    parameters: {
      path: pathParameter,
      offset: { type: 'integer', description: 'First line to show, from 1 (default 1)' },
      limit: { type: 'integer', minimum: 1, description: 'How many lines to show (default: as many as fit)' },
    },
    required: ['path'],
    schema: v.object({
      path,
      offset: v.optional(v.pipe(v.number(), v.integer()), 1),
      limit: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1, 'must be at least 1'))),
    }),
    run: async ({ path, offset, limit }, { signal }): Promise<ToolOutput> => {
      const part = { first: Math.max(1, offset), limit }
      const loaded = await load(vm, path, wholeBytes + 1, signal)
      if (typeof loaded === 'string') return failed(loaded)
      const image = imageTypeOf(loaded)
      const isWhole = loaded.length <= wholeBytes
      // A text may begin with the letters of an image: no image is without a NUL or a byte that is not UTF-8.
      if (image !== undefined && !isText(loaded)) return imageOutput(path, loaded, image, isWhole)
      if (isWhole) return linesOutput(path, linesOf(loaded, part), part.first)
      const args = [
        pathArgument(path),
        String(part.first),
        limit === undefined ? '' : String(limit),
        String(windowBytes),
      ]
      const result = await guestScript(vm, linesScript, args, { signal })
      const refused = refusal(result, path)
      if (refused !== undefined) return failed(refused)
      // The last lines: a program of the pipe may have complained before.
      const [, count = '0', unfinished] = /(\d+)(\n\+)?$/.exec(outputText(result.stderr).trim()) ?? []
      const total = Number(count) + (unfinished === undefined ? 0 : 1)
      return linesOutput(path, { bytes: result.stdout, total, isCut: result.stdout.length === windowBytes }, part.first)
    },
  })
}

/** The first bytes of a file, or why there are none. */
async function load(vm: MicroVm, path: string, bytes: number, signal: AbortSignal): Promise<Uint8Array | string> {
  const args = [pathArgument(path), String(bytes)]
  const result = await guestScript(vm, loadScript, args, { signal, maxOutputBytes: bytes })
  return refusal(result, path) ?? result.stdout
}

function linesOutput(path: string, { bytes, total, isCut }: FileLines, first: number): ToolOutput {
  if (total === 0) return { content: '(empty file)' }
  if (first > total) return failed(`Offset ${first} is beyond end of file (${total} lines total)`)
  const shown = shownLines(bytes, first, isCut)
  switch (shown.type) {
    case 'binary':
      return failed(`${path} is not UTF-8 text; look at it with bash (file, od -c, strings, iconv)`)
    case 'too_long':
      return failed(
        `Line ${first} is too long to show. See a part of it with bash: sed -n ${first}p FILE | cut -c 1-2000; go on after it with offset=${first + 1}`,
      )
    case 'lines': {
      const next = shown.last + 1
      const more = next <= total ? [`${total - shown.last} more lines in file. Use offset=${next} to continue.`] : []
      const notes = [...shown.notes, ...more].map((note) => `[${note}]`).join('\n')
      return { content: notes === '' ? shown.text : `${shown.text}\n\n${notes}` }
    }
    default:
      return shown satisfies never
  }
}

function imageOutput(
  path: string,
  bytes: Uint8Array,
  image: NonNullable<ReturnType<typeof imageTypeOf>>,
  isWhole: boolean,
): ToolOutput {
  if (bytes.length > imageBytes) {
    const size = isWhole ? `${bytes.length}` : `more than ${wholeBytes}`
    return failed(`${path} is an image of ${size} bytes; make one of at most ${imageBytes} of it`)
  }
  if ('broken' in image) return failed(`${path}: ${image.broken}`)
  const { mimeType, width, height } = image
  return {
    content: [
      { type: 'text', text: `${mimeType}, ${width}×${height} pixels, ${bytes.length} bytes` },
      { type: 'image', mimeType, data: Buffer.from(bytes).toString('base64') },
    ],
  }
}

/** Writes a file whole. It is not stopped on the way: it takes no time, and then it is known to have happened. */
async function save(vm: MicroVm, path: string, bytes: Uint8Array, before?: Uint8Array): Promise<string | undefined> {
  const digest = before === undefined ? '' : createHash('sha256').update(before).digest('hex')
  return refusal(await guestScript(vm, writeScript, [pathArgument(path), digest], { stdin: bytes }), path)
}

/** `write`: a whole file, made with its folders or replaced. */
export function writeTool(vm: MicroVm): Tool {
  return builtin({
    name: 'write',
    description:
      'Write a whole file: it is created with its folders, or its contents are replaced and its mode is kept. To change a part of a file use edit.',
    replay: 'never',
    parameters: { path: pathParameter, content: { type: 'string', description: 'All of the new contents' } },
    required: ['path', 'content'],
    schema: v.object({ path, content: v.string() }),
    run: async ({ path, content }, { signal }) => {
      const bytes = new TextEncoder().encode(content)
      const refused = await inTurn(vm, signal, () => save(vm, path, bytes))
      return refused === undefined ? { content: `wrote ${bytes.length} bytes to ${path}` } : failed(refused)
    },
  })
}

/** `edit`: one exact text replaced by another. */
export function editTool(vm: MicroVm): Tool {
  return builtin({
    name: 'edit',
    description:
      'Replace one exact text in a file; the rest of the file stays as it is, byte for byte. The text must occur exactly once (take in lines around it), unless replace_all is true.',
    replay: 'never',
    parameters: {
      path: pathParameter,
      old: {
        type: 'string',
        minLength: 1,
        description: 'The text to replace, exactly as it stands in the file, without line numbers',
      },
      new: { type: 'string', description: 'The text that takes its place' },
      replace_all: { type: 'boolean', description: 'Replace every occurrence (default false)' },
    },
    required: ['path', 'old', 'new'],
    schema: v.object({
      path,
      old: v.pipe(v.string(), v.nonEmpty('must not be empty; to fill a new file use write')),
      new: v.string(),
      replace_all: v.optional(v.boolean(), false),
    }),
    run: async ({ path, old, new: replacement, replace_all }, { signal }): Promise<ToolOutput> => {
      if (old === replacement) return failed('old and new are the same text: nothing to change')
      return inTurn(vm, signal, async () => {
        const loaded = await load(vm, path, editableBytes + 1, signal)
        if (typeof loaded === 'string') return failed(loaded)
        if (loaded.length > editableBytes) {
          return failed(`${path} is larger than ${editableBytes} bytes, which edit does not take: use bash (sed)`)
        }
        const edit = editText(loaded, old, replacement, replace_all)
        switch (edit.type) {
          case 'absent':
            return failed(`that text does not appear in the file${edit.hint ? `; ${edit.hint}` : ''}`)
          case 'ambiguous': {
            const more = edit.count > edit.lines.length ? ' and more' : ''
            return failed(
              `that text appears ${edit.count} times (lines ${[...new Set(edit.lines)].join(', ')}${more}); include enough context to make it unique`,
            )
          }
          case 'edited': {
            const unsaved = await save(vm, path, edit.bytes, loaded)
            if (unsaved !== undefined) return failed(unsaved)
            return { content: edit.replaced === 1 ? `edited ${path}` : `edited ${path} in ${edit.replaced} places` }
          }
          default:
            return edit satisfies never
        }
      })
    },
  })
}
