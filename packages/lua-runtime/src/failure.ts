import type { LuaSource } from './declarations.ts'
import type { LuaErrorCode, LuaIssue } from './errors.ts'
import { PRELUDE_NAME } from './prelude.ts'
import { sourceLine } from './program.ts'

/** Lua shows at most 59 bytes of a chunk's name: the end of it, after three dots. */
function shownName(file: string): string {
  const bytes = new TextEncoder().encode(file)
  return bytes.length <= 59 ? file : `...${new TextDecoder().decode(bytes.slice(-56))}`
}

/**
 * Turns Lua's own words (`tools/a.lua:3: attempt to …`) into an issue with the line itself, and a hint where one is known.
 * Without a position in the text it is the first frame of the author in the traceback, else `fallback` (a tail call such as
 * `return ctx.sh(…)` leaves no frame), and the message says then what failed.
 */
export function failureIssue(
  files: readonly LuaSource[],
  failure: { readonly code: LuaErrorCode; readonly text: string; readonly traceback: string },
  fallback?: { readonly file: string; readonly line?: number; readonly what?: string },
): LuaIssue {
  const { code, text } = failure
  const place = leadingPlace(files, text)
  const frame = place ?? firstFrame(files, failure.traceback)
  const message =
    place !== undefined
      ? text.slice(place.length).trimStart()
      : frame !== undefined
        ? text
        : `${fallback?.what ?? ''}${text}`
  const at = frame ?? fallback
  if (at === undefined) return { code, message }
  const line =
    at.line === undefined
      ? undefined
      : sourceLine(
          files.find((file) => file.file === at.file),
          at.line,
        )
  const hint = hintFor(message)
  return {
    code,
    file: at.file,
    message,
    ...(at.line === undefined ? {} : { line: at.line }),
    ...(line === undefined ? {} : { sourceLine: line }),
    ...(hint === undefined ? {} : { hint }),
  }
}

function leadingPlace(
  files: readonly LuaSource[],
  text: string,
): { file: string; line: number; length: number } | undefined {
  for (const { file } of files) {
    const shown = shownName(file)
    if (!text.startsWith(`${shown}:`)) continue
    const digits = /^(\d+):/.exec(text.slice(shown.length + 1))
    if (digits?.[1] !== undefined) return { file, line: Number(digits[1]), length: shown.length + 1 + digits[0].length }
  }
  return undefined
}

function firstFrame(files: readonly LuaSource[], traceback: string): { file: string; line: number } | undefined {
  for (const frame of traceback.split('\n')) {
    const place = leadingPlace(files, frame.trim())
    if (place !== undefined) return place
  }
  return undefined
}

/** Lua's traceback without the frames of the host, with the files' whole names. */
export function authorTraceback(files: readonly LuaSource[], traceback: string): string {
  const frames = traceback
    .split('\n')
    .slice(1)
    .map((frame) => frame.trim())
    .filter(
      (frame) =>
        frame !== '' &&
        !frame.startsWith(`${PRELUDE_NAME}:`) &&
        frame !== '[C]: in ?' &&
        frame !== '(...tail calls...)',
    )
    .map((frame) => {
      const place = leadingPlace(files, frame)
      return place === undefined ? frame : `${place.file}:${place.line}:${frame.slice(place.length)}`
    })
  return frames.length === 0 ? '' : `stack traceback:\n${frames.map((frame) => `  ${frame}`).join('\n')}`
}

const missing =
  /\((?:global|field|local) '(io|package|dofile|loadfile|debug|execute|getenv|exit|popen|remove|rename|tmpname)'\)/

function hintFor(message: string): string | undefined {
  const name = missing.exec(message)?.[1]
  if (name === undefined) return undefined
  return `${name} does not exist here: a tool reaches files and programs only through ctx.sh, in the sandbox`
}
