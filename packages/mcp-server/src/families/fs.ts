import type { DiffResult, GrepResult, ListResult, ReadResult } from '@reve/content-store'
import * as v from 'valibot'
import { action, field } from '../action.ts'
import { ComputerError } from '../errors.ts'
import type { Family } from '../family.ts'
import { bounded, showText } from '../text.ts'

export const fs: Family = {
  name: 'fs',
  purpose:
    'Trees as values: what changes one gives a new tree id and leaves the old one. tree, a and b take a tree id or a ref name; a ref is read, never moved (ref.move does that).',
  fields: {
    tree: { type: 'string', description: 'A tree id, or the name of a ref' },
    a: { type: 'string', description: 'A tree id, or the name of a ref' },
    b: { type: 'string', description: 'A tree id, or the name of a ref' },
    path: { type: 'string', description: 'Path in the tree, with /; bytes that are not UTF-8 as \\xHH' },
    offset: { type: 'integer', description: 'First line, from 1' },
    limit: { type: 'integer', description: 'How many lines, paths or matches' },
    pattern: { type: 'string', description: 'glob: such as src/**/*.ts; grep: a regular expression (RE2)' },
    ignore_case: { type: 'boolean', description: 'Upper and lower case are alike' },
    content: { type: 'string', description: "The file's whole new text" },
    encoding: { type: 'string', enum: ['utf8', 'base64'], description: 'How content is written (default utf8)' },
    executable: { type: 'boolean', description: 'Whether the file is a program (default: as it was)' },
    old: { type: 'string', description: 'The exact text to replace, as it stands in the file' },
    new: { type: 'string', description: 'The text that takes its place' },
    replace_all: { type: 'boolean', description: 'Replace every match' },
  },
  hints: { readOnly: false, destructive: false, idempotent: true, openWorld: false },
  actions: {
    read: action({
      signature: 'fs.read(tree, path, offset?, limit?)',
      fields: {
        tree: field.name,
        path: field.text,
        offset: v.optional(field.position),
        limit: v.optional(field.count(10_000)),
      },
      logged: ['tree', 'path', 'offset', 'limit'],
      effect: 'read',
      run: async ({ store }, { tree, path, offset, limit }) =>
        showFile(await store.fs.read(tree, path, { offset, limit })),
    }),
    list: action({
      signature: 'fs.list(tree, path?)',
      fields: { tree: field.name, path: v.optional(field.text) },
      logged: ['tree', 'path'],
      effect: 'read',
      run: async ({ store }, { tree, path }) => showList(await store.fs.list(tree, path)),
    }),
    glob: action({
      signature: 'fs.glob(tree, pattern, limit?)',
      fields: { tree: field.name, pattern: field.name, limit: v.optional(field.count(10_000)) },
      logged: ['tree', 'pattern', 'limit'],
      effect: 'read',
      run: async ({ store, signal }, { tree, pattern, limit }) => {
        const { matches, total } = await store.fs.glob(tree, pattern, { limit, signal })
        const rest =
          total > matches.length ? [`… ${total - matches.length} more; narrow the pattern or raise limit`] : []
        return bounded(
          [...matches.map(({ path }) => path), ...rest].join('\n') || '(nothing matches)',
          'Narrow the pattern.',
        )
      },
    }),
    grep: action({
      signature: 'fs.grep(tree, pattern, path?, limit?, ignore_case?)',
      fields: {
        tree: field.name,
        pattern: field.name,
        path: v.optional(field.text),
        limit: v.optional(field.count(10_000)),
        ignore_case: v.optional(field.flag),
      },
      logged: ['tree', 'pattern', 'path', 'limit', 'ignore_case'],
      effect: 'read',
      run: async ({ store, signal }, { tree, pattern, path, limit, ignore_case }) =>
        showMatches(await store.fs.grep(tree, pattern, { path, limit, ignoreCase: ignore_case, signal })),
    }),
    write: action({
      signature: 'fs.write(tree, path, content, executable?, encoding?)',
      fields: {
        tree: field.name,
        path: field.name,
        content: field.text,
        executable: v.optional(field.flag),
        encoding: v.optional(v.picklist(['utf8', 'base64'], 'must be "utf8" or "base64"'), 'utf8'),
      },
      logged: ['tree', 'path', 'executable', 'encoding'],
      effect: 'write',
      run: ({ store }, { tree, path, content, executable, encoding }) => {
        const bytes = encoding === 'base64' ? decodeBase64(content) : content
        const made = store.fs.write(tree, path, bytes, { executable })
        return `tree ${made.tree}\n${made.created ? 'created' : 'replaced'} ${made.path} (${made.bytes} bytes, blob ${made.id})`
      },
    }),
    edit: action({
      signature: 'fs.edit(tree, path, old, new, replace_all?)',
      fields: {
        tree: field.name,
        path: field.name,
        old: field.name,
        new: field.text,
        replace_all: v.optional(field.flag),
      },
      logged: ['tree', 'path', 'replace_all'],
      effect: 'write',
      run: ({ store }, { tree, path, old, new: replacement, replace_all }) => {
        const made = store.fs.edit(tree, path, old, replacement, { replaceAll: replace_all })
        return `tree ${made.tree}\nedited ${made.path} at line ${made.lines.slice(0, 20).join(', ')} (${made.bytes} bytes, blob ${made.id})`
      },
    }),
    remove: action({
      signature: 'fs.remove(tree, path)',
      fields: { tree: field.name, path: field.name },
      logged: ['tree', 'path'],
      effect: 'write',
      run: ({ store }, { tree, path }) => {
        const made = store.fs.remove(tree, path)
        return `tree ${made.tree}\nremoved ${made.path} (${made.kind}${made.kind === 'directory' ? `, ${made.removed} files` : ''})`
      },
    }),
    diff: action({
      signature: 'fs.diff(a, b)',
      fields: { a: field.name, b: field.name },
      logged: ['a', 'b'],
      effect: 'read',
      run: async ({ store, signal }, { a, b }) => showDiff(await store.fs.diff(a, b, { signal })),
    }),
    empty: action({
      signature: 'fs.empty()',
      fields: {},
      logged: [],
      effect: 'read',
      run: ({ store }) => `tree ${store.fs.empty().tree}`,
    }),
  },
}

/** Bytes of base64, whose lines may be broken and whose padding may be left out. */
function decodeBase64(text: string): Buffer {
  const compact = text.replaceAll(/\s+/g, '')
  const bytes = Buffer.from(compact, 'base64')
  // Node skips what is not base64: bytes other than those that were meant must not be stored.
  if (bytes.toString('base64') !== compact.padEnd(Math.ceil(compact.length / 4) * 4, '='))
    throw new ComputerError('bad_call', 'fs.write: "content" must be base64, as encoding="base64" says')
  return bytes
}

function showFile(file: ReadResult): string {
  switch (file.kind) {
    case 'text':
      return bounded(showText(file), 'Ask for fewer lines with limit.')
    case 'binary':
      return `binary, ${file.bytes} bytes${file.type === undefined ? '' : `, ${file.type}`}, blob ${file.id}`
    case 'symlink':
      return `symbolic link to ${file.target}`
    case 'gitlink':
      return `submodule at commit ${file.id}`
    default:
      return file satisfies never
  }
}

const showList = ({ entries }: ListResult): string =>
  bounded(
    entries
      .map(({ name, kind, size, target }) => {
        const end =
          kind === 'directory'
            ? '/'
            : kind === 'executable'
              ? '*'
              : kind === 'symlink'
                ? ` -> ${target ?? ''}`
                : kind === 'gitlink'
                  ? ' (submodule)'
                  : ''
        return size === null ? `${name}${end}` : `${name}${end} ${size}`
      })
      .join('\n') || '(empty)',
    'Use fs.glob to narrow it.',
  )

function showMatches(found: GrepResult): string {
  const lines = [
    ...found.matches.map(({ path, line, text }) => `${path}:${line}:${text}`),
    ...found.binary.map((path) => `${path}: binary, matches`),
    ...found.tooLarge.map((path) => `${path}: too large, not searched`),
    ...(found.truncated ? [`… more match, from ${found.stoppedAt ?? 'here'} on; narrow path or raise limit`] : []),
  ]
  return bounded(lines.join('\n') || `(no match in ${found.files} files)`, 'Narrow the pattern or the path.')
}

function showDiff(diff: DiffResult): string {
  if (diff.files.length === 0) return '(no difference)'
  const files = diff.files.map(({ change, path, added, removed, binary }) => {
    const size = binary ? ' binary' : added === null || removed === null ? '' : ` +${added} -${removed}`
    return `${change} ${path}${size}`
  })
  const omitted =
    diff.omitted.length === 0
      ? []
      : [`… the text of ${diff.omitted.length} files is left out: ${diff.omitted.slice(0, 20).join(', ')}`]
  return bounded([...files, '', diff.text, ...omitted].join('\n'), 'Read the files with fs.read.')
}
