import type { Tool, ToolOutput } from '@reve/harness'
import type { MicroVm } from '@reve/sandbox-microvm'
import * as v from 'valibot'
import { editText } from './edit-text.ts'
import { guestScript, outputText, pathArgument } from './guest.ts'
import { spill } from './spill.ts'
import { builtin, failed } from './tool.ts'

/** Largest file that `edit` loads and that `write` takes. */
const editableBytes = 16 << 20

/** Prints the asked lines on stdout; on stderr the number of lines and, when the last one is unfinished, a `+`. */
const readScript = `
[ -e "$1" ] || { echo "no such file: $1" >&2; exit 66; }
[ -d "$1" ] && { echo "$1 is a directory; use ls" >&2; exit 66; }
[ -f "$1" ] || { echo "$1 is not a regular file" >&2; exit 66; }
[ -r "$1" ] || { echo "$1 may not be read" >&2; exit 66; }
if [ -n "$3" ]; then tail -n "+$2" "$1" | head -n "$3"; else tail -n "+$2" "$1"; fi
wc -l <"$1" >&2
[ -n "$(tail -c 1 "$1")" ] && echo + >&2
exit 0`

/** A pipe or a device could be read for ever. */
const loadScript = '[ -f "$1" ] || [ ! -e "$1" ] || { echo "$1 is not a regular file" >&2; exit 66; }; cat "$1"'

/** Replaces a file's contents from stdin whole or not at all, keeping its mode; a link's target is replaced, not the link. */
const writeScript = `
set -e
f=$1
case $f in */*) mkdir -p "\${f%/*}";; esac
if [ -L "$f" ]; then f=$(readlink -f "$f"); fi
[ -d "$f" ] && { echo "$1 is a directory" >&2; exit 66; }
t=$(mktemp "\${f%/*}/.reve-write.XXXXXX")
trap 'rm -f "$t"' EXIT
if [ -e "$f" ]; then cp -p "$f" "$t"; else chmod 644 "$t"; fi
cat >"$t"
mv -f "$t" "$f"`

/** `read`: numbered lines of a text file, from `offset` (1-based), at most `limit`. */
export function readTool(vm: MicroVm): Tool {
  return builtin({
    name: 'read',
    description: 'Read a text file. Shows numbered lines; offset (1-based) and limit select a part of a long file.',
    replay: 'safe',
    parameters: {
      path: { type: 'string', description: 'Path, relative to the working directory' },
      offset: { type: 'integer', description: 'First line to show, 1-based' },
      limit: { type: 'integer', minimum: 1, description: 'How many lines to show' },
    },
    required: ['path'],
    schema: v.object({
      path: v.string(),
      offset: v.optional(v.pipe(v.number(), v.integer()), 1),
      limit: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
    }),
    run: async ({ path, offset, limit }, { signal }): Promise<ToolOutput> => {
      const first = Math.max(1, offset)
      const args = [pathArgument(path), String(first), limit === undefined ? '' : String(limit)]
      const result = await guestScript(vm, readScript, args, { signal })
      const report = outputText(result.stderr).trim()
      if (result.exitCode !== 0) return failed(report || `read ended with exit code ${result.exitCode}`)
      // The last lines: a program of the pipe may have complained before.
      const [, count = '0', unfinished] = /(\d+)(\n\+)?$/.exec(report) ?? []
      const total = Number(count) + (unfinished === undefined ? 0 : 1)
      if (first > total && total > 0) return failed(`Offset ${first} is beyond end of file (${total} lines total)`)
      if (total === 0) return { content: '(empty file)' }
      if (result.stdoutBytes > result.stdout.length) {
        return failed(
          `these lines hold ${result.stdoutBytes} bytes, too many to show: ask for fewer with offset and limit, or use bash (cut, head -c)`,
        )
      }
      const contents = decodeText(result.stdout)
      if (contents === undefined) return failed(`${path} is not UTF-8 text; look at it with bash (file, xxd)`)
      const lines = contents.split('\n')
      if (lines.at(-1) === '') lines.pop()
      const numbered = lines.map((line, index) => `${String(first + index).padStart(5)}  ${line}`).join('\n')
      const next = first + lines.length
      const more = next <= total ? `\n\n[${total - next + 1} more lines in file. Use offset=${next} to continue.]` : ''
      return { content: await spill(vm, numbered + more, signal) }
    },
  })
}

function decodeText(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (error) {
    if (error instanceof TypeError) return undefined
    throw error
  }
}

/** `write`: a whole file, made with its folders or replaced. */
export function writeTool(vm: MicroVm): Tool {
  return builtin({
    name: 'write',
    description: 'Write a whole file: it is created with its folders, or its contents are replaced.',
    replay: 'never',
    parameters: {
      path: { type: 'string', description: 'Path, relative to the working directory' },
      content: { type: 'string', description: 'The new contents' },
    },
    required: ['path', 'content'],
    schema: v.object({ path: v.string(), content: v.string() }),
    run: async ({ path, content }, { signal }) => {
      const bytes = new TextEncoder().encode(content)
      const result = await guestScript(vm, writeScript, [pathArgument(path)], { signal, stdin: bytes })
      if (result.exitCode !== 0)
        return failed(outputText(result.stderr).trim() || `write ended with exit code ${result.exitCode}`)
      return { content: `wrote ${bytes.length} bytes to ${path}` }
    },
  })
}

/** `edit`: one exact text replaced by another. */
export function editTool(vm: MicroVm): Tool {
  return builtin({
    name: 'edit',
    description: 'Replace one exact text in a file. It must occur exactly once, unless replace_all is true.',
    replay: 'never',
    parameters: {
      path: { type: 'string', description: 'Path, relative to the working directory' },
      old: {
        type: 'string',
        minLength: 1,
        description: 'The text to replace, exactly as it stands in the file, without line numbers',
      },
      new: { type: 'string', description: 'The text that takes its place' },
      replace_all: { type: 'boolean', description: 'Replace every occurrence' },
    },
    required: ['path', 'old', 'new'],
    schema: v.object({
      path: v.string(),
      old: v.pipe(v.string(), v.nonEmpty()),
      new: v.string(),
      replace_all: v.optional(v.boolean(), false),
    }),
    run: async ({ path, old, new: replacement, replace_all }, { signal }) => {
      const file = pathArgument(path)
      const loaded = await guestScript(vm, loadScript, [file], { signal, maxOutputBytes: editableBytes })
      if (loaded.exitCode !== 0) return failed(outputText(loaded.stderr).trim() || `${path} could not be read`)
      if (loaded.stdoutBytes > loaded.stdout.length) {
        return failed(
          `${path} has ${loaded.stdoutBytes} bytes; edit takes files up to ${editableBytes}: use bash (sed)`,
        )
      }
      const edit = editText(loaded.stdout, old, replacement, replace_all)
      switch (edit.type) {
        case 'absent':
          return failed(`that text does not appear in the file${edit.hint ? `; ${edit.hint}` : ''}`)
        case 'ambiguous':
          return failed(
            `that text appears ${edit.lines.length} times (lines ${edit.lines.slice(0, 20).join(', ')}); include enough context to make it unique`,
          )
        case 'edited': {
          const saved = await guestScript(vm, writeScript, [file], { signal, stdin: edit.bytes })
          if (saved.exitCode !== 0) return failed(outputText(saved.stderr).trim() || `${path} could not be written`)
          return { content: edit.replaced === 1 ? `edited ${path}` : `edited ${path} in ${edit.replaced} places` }
        }
        default:
          return edit satisfies never
      }
    },
  })
}
