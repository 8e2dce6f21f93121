import { positionOf, type Declared, type LuaProgram, type LuaSource, type ToolDeclaration } from './declarations.ts'
import type { LuaIssue } from './errors.ts'
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
  const issues: LuaIssue[] = []
  const warnings: LuaIssue[] = []
  const tools: ToolDeclaration[] = []
  const named = new Map<string, { readonly file: string; readonly line: number }>()
  const single = new Map<'agent' | 'sandbox', Declared>()
  const sourceOf = (file: string): WorkerFile | undefined => files.find((candidate) => candidate.file === file)
  const issue = (file: string, line: number, message: string): LuaIssue => {
    const text = sourceLine(sourceOf(file), line)
    return { code: 'lua_declaration', file, line, message, ...(text === undefined ? {} : { sourceLine: text }) }
  }

  for (const raw of declarations) {
    const at = { file: raw.file, line: raw.line }
    const callee = raw.kind === 'tools' ? 'tool' : raw.kind
    if (raw.problem !== undefined) {
      issues.push(issue(raw.file, raw.line, `${callee}: ${raw.problem}`))
      continue
    }
    const lines = Object.fromEntries(tableLines(sourceOf(raw.file)?.source ?? '', callee, raw.line))
    const declared: Declared = { value: raw.value ?? null, at, lines }
    if (raw.kind === 'tools') {
      const checked = checkTool(raw)
      if ('problems' in checked) {
        for (const { path, message } of checked.problems)
          issues.push(issue(raw.file, positionOf(declared, path).line, message))
      } else {
        tools.push(checked.tool)
        if (checked.tool.description === '')
          warnings.push(
            issue(
              raw.file,
              raw.line,
              `tool "${checked.tool.name}" has no description; a model cannot tell what it is for`,
            ),
          )
      }
      if (typeof raw.name !== 'string') continue
      const first = named.get(raw.name)
      if (first === undefined) named.set(raw.name, at)
      else
        issues.push(
          issue(
            raw.file,
            raw.line,
            `tool "${raw.name}" is declared twice; the first is at ${first.file}:${first.line}`,
          ),
        )
      continue
    }
    const first = single.get(raw.kind)
    if (first !== undefined) {
      issues.push(
        issue(raw.file, raw.line, `${raw.kind}{} is called twice; the first is at ${first.at.file}:${first.at.line}`),
      )
      continue
    }
    // Keys that are no list hold a list only by mistake: `agent { "x" }`.
    if (!isLuaTable(declared.value)) {
      issues.push(
        issue(raw.file, raw.line, `${raw.kind} needs a table with named keys, like ${raw.kind} { name = "…" }`),
      )
      continue
    }
    single.set(raw.kind, declared)
  }

  for (const file of files) {
    if (declarations.some((raw) => raw.file === file.file)) continue
    const what = file.kind === 'tools' ? 'tool()' : `${file.kind}{}`
    warnings.push({ code: 'lua_declaration', file: file.file, message: `the file never calls ${what}` })
  }
  const agent = single.get('agent')
  const sandbox = single.get('sandbox')
  return {
    program: {
      ...(agent === undefined ? {} : { agent }),
      ...(sandbox === undefined ? {} : { sandbox }),
      tools,
      warnings,
    },
    issues,
  }
}
