import { ReveError } from '@reve/base'

/**
 * - `lua_syntax`: a file does not parse.
 * - `lua_runtime`: the script raised an error, or gave a value that cannot leave Lua.
 * - `lua_limit`: CPU, memory or wall limit.
 * - `lua_declaration`: what `agent{}`, `sandbox{}` or `tool()` was given is wrong.
 * - `lua_arguments`: the arguments of a call do not fit the tool's params; the body did not run.
 * - `lua_stuck`: the script did not come back from one library call (a pattern match, say); its worker was ended.
 * - `lua_unknown_tool`: no tool of that name.
 * - `lua_aborted`: the call's signal fired, or the runtime was closed.
 */
export type LuaErrorCode =
  | 'lua_syntax'
  | 'lua_runtime'
  | 'lua_limit'
  | 'lua_declaration'
  | 'lua_arguments'
  | 'lua_stuck'
  | 'lua_unknown_tool'
  | 'lua_aborted'

/** One thing that is wrong, and where. `line` counts from 1; `sourceLine` is that line of the author's file. */
export type LuaIssue = {
  readonly code: LuaErrorCode
  readonly file?: string
  readonly line?: number
  readonly message: string
  readonly sourceLine?: string
  readonly hint?: string
}

const severity: readonly LuaErrorCode[] = [
  'lua_aborted',
  'lua_stuck',
  'lua_limit',
  'lua_syntax',
  'lua_runtime',
  'lua_unknown_tool',
  'lua_arguments',
  'lua_declaration',
]

/**
 * Everything that this package throws. `issues` has at least one entry and all that is known to be wrong; the message
 * is their text. `traceback` shows the author's frames only.
 */
export class LuaError extends ReveError<LuaErrorCode> {
  override readonly name = 'LuaError'
  readonly issues: readonly LuaIssue[]
  readonly traceback?: string

  constructor(
    issues: readonly LuaIssue[],
    options: { readonly traceback?: string | undefined; readonly cause?: unknown } = {},
  ) {
    const code = severity.find((candidate) => issues.some((issue) => issue.code === candidate)) ?? 'lua_runtime'
    const hint = issues.find((issue) => issue.hint !== undefined)?.hint
    super(code, issues.map(formatIssue).join('\n'), {
      ...(options.cause === undefined ? {} : { cause: options.cause }),
      ...(hint === undefined ? {} : { hint }),
    })
    this.issues = issues
    if (options.traceback !== undefined && options.traceback !== '') this.traceback = options.traceback
  }
}

/** `file:line: message`, the line itself below it, and the hint. */
function formatIssue(issue: LuaIssue): string {
  const where = issue.file === undefined ? '' : `${issue.file}:${issue.line === undefined ? '' : `${issue.line}:`} `
  const source =
    issue.sourceLine === undefined || issue.line === undefined
      ? ''
      : `\n  ${issue.line} | ${issue.sourceLine.trimEnd()}`
  const hint = issue.hint === undefined ? '' : `\n  hint: ${issue.hint}`
  return `${where}${issue.message}${source}${hint}`
}
