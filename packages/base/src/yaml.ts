import { EVENT_ID, getScalarValue, load, parseEvents, YAMLException } from 'js-yaml'
import * as v from 'valibot'
import { ReveError } from './errors.ts'

/** One thing that is wrong in a YAML file. Lines and columns count from 1. */
export type YamlIssue = {
  readonly file: string
  readonly line: number
  readonly column: number
  /** Place in the value, `providers/openai/apiKey`; empty for the whole. */
  readonly path: string
  readonly message: string
}

/** A YAML file that does not parse, or does not say what it should; the message lists every issue with its place. */
export class YamlError extends ReveError<'yaml_syntax' | 'yaml_schema'> {
  override readonly name = 'YamlError'
  readonly issues: readonly YamlIssue[]
  constructor(code: 'yaml_syntax' | 'yaml_schema', issues: readonly YamlIssue[], cause?: unknown) {
    super(code, issues.map(lineOf).join('\n'), cause === undefined ? {} : { cause })
    this.issues = issues
  }
}

const lineOf = ({ file, line, column, path, message }: YamlIssue): string =>
  `${file}:${line}:${column}: ${path === '' ? '' : `${path}: `}${message}`

/**
 * Parses YAML (core schema) and checks it: one typed value, or every issue at once with its line and column.
 *
 * @param file the name that messages show.
 */
export function parseYaml<Schema extends v.GenericSchema>(
  source: string,
  file: string,
  schema: Schema,
): v.InferOutput<Schema> {
  const data = loadYaml(source, file)
  const result = v.safeParse(schema, data)
  if (result.success) return result.output
  const places = offsets(source)
  throw new YamlError(
    'yaml_schema',
    result.issues.map((issue) => {
      const keys = (issue.path ?? []).map((item) => String(item.key))
      return { file, ...positionAt(source, nearestPlace(places, keys)), path: keys.join('/'), message: issue.message }
    }),
  )
}

function loadYaml(source: string, file: string): unknown {
  // An empty document is null, as it is for every other YAML reader.
  if (source.replaceAll(/^\s*(#.*)?$/gm, '').trim() === '') return null
  try {
    const bad = badAlias(source)
    if (bad !== undefined) {
      throw new YamlError('yaml_syntax', [{ file, ...positionAt(source, bad.offset), path: '', message: bad.message }])
    }
    return load(source, { filename: file })
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    const { mark } = error
    const line = mark ? mark.line + 1 : 1
    const column = mark ? mark.column + 1 : 1
    throw new YamlError('yaml_syntax', [{ file, line, column, path: '', message: error.reason }], error)
  }
}

/** Values that a document may have when its aliases are written out. */
const mostValues = 100_000

/**
 * The first alias that must not be followed: one that stands inside of what it names, or one with which a few lines become
 * more values than anybody wrote.
 */
function badAlias(source: string): { readonly offset: number; readonly message: string } | undefined {
  /** Values of each anchor that is complete. */
  const sizes = new Map<string, number>()
  const stack: { readonly anchor: string | undefined; size: number }[] = [{ anchor: undefined, size: 0 }]
  const nameAt = (start: number, end: number): string | undefined => (start < 0 ? undefined : source.slice(start, end))
  const add = (anchor: string | undefined, size: number): void => {
    if (anchor !== undefined) sizes.set(anchor, size)
    const frame = stack.at(-1)
    if (frame !== undefined) frame.size += size
  }
  for (const event of parseEvents(source, {})) {
    switch (event.type) {
      case EVENT_ID.DOCUMENT:
        stack.push({ anchor: undefined, size: 0 })
        break
      case EVENT_ID.MAPPING:
      case EVENT_ID.SEQUENCE:
        stack.push({ anchor: nameAt(event.anchorStart, event.anchorEnd), size: 1 })
        break
      case EVENT_ID.SCALAR:
        add(nameAt(event.anchorStart, event.anchorEnd), 1)
        break
      case EVENT_ID.POP: {
        const frame = stack.pop()
        if (frame !== undefined) add(frame.anchor, frame.size)
        break
      }
      case EVENT_ID.ALIAS: {
        const name = nameAt(event.anchorStart, event.anchorEnd) ?? ''
        const offset = event.anchorStart
        if (stack.some(({ anchor }) => anchor === name))
          return { offset, message: `the alias *${name} stands inside of what it names` }
        add(undefined, sizes.get(name) ?? 1)
        if ((stack.at(-1)?.size ?? 0) > mostValues)
          return { offset, message: `with the alias *${name} the document has more than ${mostValues} values` }
        break
      }
      default:
        break
    }
  }
  return undefined
}

const separator = '\0'

/** The offset of the value at `keys`, or of the nearest one around it. */
function nearestPlace(places: ReadonlyMap<string, number>, keys: readonly string[]): number {
  for (let length = keys.length; length > 0; length--) {
    const offset = places.get(keys.slice(0, length).join(separator))
    if (offset !== undefined) return offset
  }
  return 0
}

type Frame =
  | { readonly kind: 'document' }
  | {
      readonly kind: 'map'
      readonly path: readonly string[]
      key: { readonly name: string; readonly offset: number } | undefined
    }
  | { readonly kind: 'list'; readonly path: readonly string[]; next: number }

/** Path of each value → its offset in the source. */
function offsets(source: string): ReadonlyMap<string, number> {
  const places = new Map<string, number>()
  const stack: Frame[] = []
  /** Notes the value that starts at `offset` in the innermost collection and gives its path. */
  const place = (offset: number): readonly string[] => {
    const frame = stack.at(-1)
    if (frame === undefined || frame.kind === 'document') return []
    const name = frame.kind === 'list' ? String(frame.next++) : (frame.key?.name ?? '')
    const at = offset >= 0 ? offset : frame.kind === 'map' ? (frame.key?.offset ?? 0) : 0
    if (frame.kind === 'map') frame.key = undefined
    const path = [...frame.path, name]
    places.set(path.join(separator), at)
    return path
  }
  for (const event of parseEvents(source, {})) {
    const frame = stack.at(-1)
    const isKey = frame?.kind === 'map' && frame.key === undefined
    switch (event.type) {
      case EVENT_ID.DOCUMENT:
        stack.push({ kind: 'document' })
        break
      case EVENT_ID.POP:
        stack.pop()
        break
      case EVENT_ID.SCALAR:
        if (isKey) frame.key = { name: getScalarValue(source, event), offset: event.valueStart }
        else place(event.valueStart)
        break
      case EVENT_ID.ALIAS:
        if (isKey) frame.key = { name: '', offset: event.anchorStart }
        else place(event.anchorStart)
        break
      case EVENT_ID.MAPPING:
        stack.push({ kind: 'map', path: place(event.start), key: undefined })
        break
      case EVENT_ID.SEQUENCE:
        stack.push({ kind: 'list', path: place(event.start), next: 0 })
        break
      default:
        break
    }
  }
  return places
}

function positionAt(source: string, offset: number): { readonly line: number; readonly column: number } {
  const before = source.slice(0, offset)
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') }
}
