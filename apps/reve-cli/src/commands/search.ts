import { createReadStream } from 'node:fs'
import { basename } from 'node:path'
import { createContext, Script } from 'node:vm'
import { agentRoot } from '@reve/agent/folder'
import { sanitiseLine } from '@reve/base'
import { listSessions } from '@reve/session-log'
import * as v from 'valibot'
import { UsageError, type SessionsCommand } from '../arguments.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { linesOf } from '../lines.ts'
import { sessionsOf } from '../session-files.ts'
import { count } from '../table.ts'
import { said, searchable } from '../transcript.ts'

type Search = Extract<SessionsCommand, { readonly action: 'search' }>

/** Characters around what was found. */
const AROUND = 60
/** A longer line of a session is not looked through. */
const MOST_BYTES = 64 << 20
/** Lines of one entry that are told. */
const MOST_LINES = 20
/** For one entry: an expression that takes longer tries every way there is. */
const MOST_MS = 2000

type Match = { readonly line: number; readonly at: number; readonly length: number }
type Finder = (lines: readonly string[]) => readonly Match[]

/** `reve sessions search`: reads line by line, so that a long history takes no more memory than its longest line. */
export async function search(context: Context, { text, regex, json }: Search): Promise<number> {
  const { output, folder, signal } = context
  const find = finderOf(text, regex)
  const sessions = await listSessions(sessionsOf(await agentRoot(folder)))
  let found = 0
  let tooLong = 0
  for (const { file } of sessions) {
    for await (const written of linesOf(createReadStream(file, { signal }), MOST_BYTES, () => (tooLong += 1))) {
      const entry = entryOf(written)
      if (entry === undefined) continue
      const about = said(entry)
      const { id, ts, who } = about
      const lines = searchable(about).split('\n')
      const matches = find(lines)
      if (matches.length > 0) found += 1
      for (const { line, at, length } of matches.slice(0, MOST_LINES)) {
        const shown = around(lines[line] ?? '', at, length)
        if (json) output.result(JSON.stringify({ file, id, ts, who, line: line + 1, text: shown }))
        else
          output.result(
            `${sanitiseLine(basename(file))}  ${sanitiseLine(id)}  ${who}:${line + 1}: ${sanitiseLine(shown)}`,
          )
      }
      if (matches.length > MOST_LINES && !json)
        output.note(`${sanitiseLine(id)} has ${matches.length - MOST_LINES} more lines with it`)
    }
  }
  if (tooLong > 0) output.note(`${count(tooLong, 'entry', 'entries')} over 64 MiB not looked through`)
  if (found === 0) output.note(`nothing found in ${count(sessions.length, 'session')}`)
  return found > 0 ? exitCode.done : exitCode.failed
}

const Matches = v.array(v.object({ line: v.number(), at: v.number(), length: v.number() }))

/** The first match of each line. Without a large letter in it, large and small are the same. */
function finderOf(text: string, isRegex: boolean): Finder {
  const source = isRegex ? text : text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
  const pattern = patternOf(source, /\p{Lu}/u.test(text) ? 'u' : 'iu')
  const findAll: Finder = (lines) =>
    lines.flatMap((words, line) => {
      const match = pattern.exec(words)
      return match === null ? [] : [{ line, at: match.index, length: match[0].length }]
    })
  if (!isRegex) return findAll
  // Who wrote the expression waits for it; what it is tried on was written by others. Only a context of its own can be given up.
  const around: { lines: readonly string[] } = { lines: [] }
  const inside = createContext(around)
  const script = new Script(
    `{ const pattern = new RegExp(${JSON.stringify(pattern.source)}, ${JSON.stringify(pattern.flags)})
    Array.from(lines).flatMap((words, line) => {
      const match = pattern.exec(words)
      return match === null ? [] : [{ line, at: match.index, length: match[0].length }]
    }) }`,
  )
  return (lines) => {
    around.lines = lines
    try {
      return v.parse(Matches, JSON.parse(JSON.stringify(script.runInContext(inside, { timeout: MOST_MS }))))
    } catch (error) {
      if (!isTimeout(error)) throw error
      throw new UsageError(
        'this expression takes too long on what was said; one without repetitions inside of repetitions is quick',
        'sessions',
      )
    }
  }
}

/** It comes from the other context, whose errors are not instances of ours. */
const isTimeout = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'

function patternOf(source: string, flags: string): RegExp {
  try {
    return new RegExp(source, flags)
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new UsageError(`this is no regular expression: ${error.message}`, 'sessions')
  }
}

const Entry = v.looseObject({
  kind: v.literal('entry'),
  id: v.string(),
  ts: v.string(),
  lane: v.string(),
  type: v.string(),
})

/** What a line of a session says, if it is an entry; what is damaged is for verify to tell. */
function entryOf(line: string): v.InferOutput<typeof Entry> | undefined {
  if (!line.includes('"entry"')) return undefined
  try {
    const entry = v.safeParse(Entry, JSON.parse(line))
    return entry.success ? entry.output : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function around(text: string, at: number, length: number): string {
  const [from, to] = [Math.max(0, at - AROUND), Math.min(text.length, at + Math.min(length, 2 * AROUND) + AROUND)]
  return `${from > 0 ? '…' : ''}${text.slice(from, to).toWellFormed()}${to < text.length ? '…' : ''}`
}
