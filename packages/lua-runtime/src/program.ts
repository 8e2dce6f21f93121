import {
  positionOf,
  type ChannelDeclaration,
  type CommandDeclaration,
  type Declared,
  type HookDeclaration,
  type LuaProgram,
  type LuaSource,
  type Position,
  type ToolDeclaration,
} from './declarations.ts'
import type { LuaIssue } from './errors.ts'
import { moduleName } from './module-name.ts'
import { checkChannel, checkCommand, checkHook, moduleClash, type Checked } from './other-specs.ts'
import { tableLines } from './positions.ts'
import type { RawDeclaration, WorkerFile } from './protocol.ts'
import { checkTool } from './tool-spec.ts'
import { isLuaTable } from './values.ts'

/** Line `line` of a file, without its end; undefined where there is none. */
export function sourceLine(source: LuaSource | undefined, line: number): string | undefined {
  return source?.source.split('\n')[line - 1]?.replace(/\r$/, '')
}

/** Turns what the files declared into a program, or into everything that is wrong with it. Pure. */
export function buildProgram(
  files: readonly WorkerFile[],
  declarations: readonly RawDeclaration[],
): { readonly program: LuaProgram; readonly issues: readonly LuaIssue[] } {
  const report = createReport(files)
  const tools: ToolDeclaration[] = []
  const commands: CommandDeclaration[] = []
  const hooks: HookDeclaration[] = []
  const channels: ChannelDeclaration[] = []
  const single = new Map<'agent' | 'sandbox', Declared>()
  const first = new Map<string, Position>()
  let hookCount = 0

  /** Only once may something be declared; the second time is told with the place of the first. */
  const isAgain = (raw: RawDeclaration, key: string, what: string): boolean => {
    const before = first.get(key)
    if (before === undefined) {
      first.set(key, { file: raw.file, line: raw.line })
      return false
    }
    report.issue(raw, `${what}; the first is at ${before.file}:${before.line}`)
    return true
  }
  const take = <T>(raw: RawDeclaration, checked: Checked<T>, into: T[]): void => {
    if (checked.type === 'good') into.push(checked.value)
    else report.problems(raw, checked.problems)
  }

  for (const raw of declarations) {
    const { callee, name } = raw
    const index = callee === 'on' ? hookCount++ : 0
    if (raw.problem !== undefined) {
      report.issue(raw, `${callee}: ${raw.problem}`)
      continue
    }
    switch (callee) {
      case 'tool': {
        const checked = checkTool(raw)
        if ('problems' in checked) report.problems(raw, checked.problems)
        else {
          tools.push(checked.tool)
          if (checked.tool.description === '')
            report.warning(raw, `tool "${checked.tool.name}" has no description; a model cannot tell what it is for`)
        }
        if (typeof name === 'string') isAgain(raw, `tool ${name}`, `tool "${name}" is declared twice`)
        break
      }
      case 'command':
        take(raw, checkCommand(raw), commands)
        if (typeof name === 'string') isAgain(raw, `command ${name}`, `command "${name}" is declared twice`)
        break
      case 'on':
        take(raw, checkHook(raw, index), hooks)
        break
      case 'channel':
        if (!isAgain(raw, `channel ${raw.file}`, 'channel{} is called twice, and a file is one channel'))
          take(raw, checkChannel(raw), channels)
        break
      case 'agent':
      case 'sandbox': {
        if (isAgain(raw, callee, `${callee}{} is called twice`)) break
        const declared = report.declared(raw)
        // Keys that are no list hold a list only by mistake: `agent { "x" }`.
        if (isLuaTable(declared.value)) single.set(callee, declared)
        else report.issue(raw, `${callee} needs a table with named keys, like ${callee} { name = "…" }`)
        break
      }
      default:
        callee satisfies never
    }
  }

  const modules = Map.groupBy(
    files.filter(({ kind }) => kind === 'lib'),
    ({ file }) => moduleName(file),
  )
  for (const [name, same] of modules) {
    const clash = moduleClash(
      name,
      same.map(({ file }) => file),
    )
    for (const { file } of clash === undefined ? [] : same) report.issue({ file, line: 1 }, clash ?? '')
  }
  for (const { kind, file } of files) {
    if (kind === 'lib' || declarations.some((raw) => raw.file === file)) continue
    const what = { tools: 'tool()', channels: 'channel{}', agent: 'agent{}', sandbox: 'sandbox{}' }[kind]
    report.warnings.push({ code: 'lua_declaration', file, message: `the file never calls ${what}` })
  }
  const agent = single.get('agent')
  const sandbox = single.get('sandbox')
  return {
    program: {
      ...(agent === undefined ? {} : { agent }),
      ...(sandbox === undefined ? {} : { sandbox }),
      tools,
      commands,
      hooks,
      channels,
      warnings: report.warnings,
    },
    issues: report.issues,
  }
}

/** Collects what is wrong, each with the line that it is about. */
function createReport(files: readonly WorkerFile[]) {
  const issues: LuaIssue[] = []
  const warnings: LuaIssue[] = []
  const sourceOf = (file: string): WorkerFile | undefined => files.find((candidate) => candidate.file === file)
  const at = ({ file, line }: Position, message: string): LuaIssue => {
    const text = sourceLine(sourceOf(file), line)
    return { code: 'lua_declaration', file, line, message, ...(text === undefined ? {} : { sourceLine: text }) }
  }
  const declared = (raw: RawDeclaration): Declared => ({
    value: raw.value ?? null,
    at: { file: raw.file, line: raw.line },
    lines: Object.fromEntries(tableLines(sourceOf(raw.file)?.source ?? '', raw.callee, raw.line)),
  })
  return {
    issues,
    warnings,
    declared,
    issue: (where: Position, message: string): void => void issues.push(at(where, message)),
    warning: (where: Position, message: string): void => void warnings.push(at(where, message)),
    problems: (raw: RawDeclaration, all: readonly { readonly path: string; readonly message: string }[]): void => {
      const place = declared(raw)
      for (const { path, message } of all)
        issues.push(at({ file: raw.file, line: positionOf(place, path).line }, message))
    },
  }
}
