import { createReadStream } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { agentRoot } from '@reve/agent'
import { codeOf, sanitiseLine, sanitiseTerminal } from '@reve/base'
import { type EntryLine, listSessions, readSession, sessionName, type SessionView } from '@reve/session-log'
import { UsageError, type SessionsCommand } from '../arguments.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { toHtml } from '../export-html.ts'
import { toMarkdown } from '../export-markdown.ts'
import { newest, sessionFile, sessionsOf } from '../session-files.ts'
import { count } from '../table.ts'
import { said, searchable, type Block } from '../transcript.ts'

type Action<Name extends SessionsCommand['action']> = Extract<SessionsCommand, { readonly action: Name }>

/** Lines of one piece that are shown; the whole is in the export. */
const SHOWN_LINES = 20
/** Characters around what was found. */
const AROUND = 60

/** `reve sessions show` */
export async function show(context: Context, { session, lane, json }: Action<'show'>): Promise<number> {
  const { output, folder } = context
  const view = await readSession(session === undefined ? await newest(folder) : await sessionFile(folder, session))
  const path = pathOf(view, lane)
  if (json) output.result(JSON.stringify(path.map(said)))
  else output.result(path.map(entryText).join('\n\n'))
  return exitCode.done
}

function entryText(entry: EntryLine): string {
  const { who, ts, id, blocks } = said(entry)
  const head = `${who} · ${ts} · ${id}`
  return [sanitiseLine(head), ...blocks.map((block) => indented(blockText(block)))].join('\n')
}

function blockText(block: Block): string {
  switch (block.kind) {
    case 'text':
    case 'note':
      return block.text
    case 'reasoning':
    case 'summary':
      return `(${block.kind})\n${block.text}`
    case 'call':
      return `▸ ${block.name} ${block.text}`
    case 'result':
      return `${block.isError ? '✗' : '└'} ${block.text}`
    case 'image':
      return `(image, ${block.mimeType})`
    default:
      return block satisfies never
  }
}

function indented(text: string): string {
  const lines = sanitiseTerminal(text).trimEnd().split('\n')
  const shown = lines.slice(0, SHOWN_LINES).map((line) => `  ${line}`)
  return [...shown, ...(lines.length > SHOWN_LINES ? [`  … ${lines.length - SHOWN_LINES} more lines`] : [])].join('\n')
}

/** `reve sessions search`: reads line by line, so that a long history takes no more memory than its longest line. */
export async function search(context: Context, { text, regex, json }: Action<'search'>): Promise<number> {
  const { output, folder, signal } = context
  const pattern = patternOf(text, regex)
  const sessions = await listSessions(sessionsOf(await agentRoot(folder)))
  let found = 0
  for (const { file } of sessions) {
    const lines = createInterface({ input: createReadStream(file, { signal }), crlfDelay: Infinity })
    for await (const line of lines) {
      const entry = entryOf(line)
      if (entry === undefined) continue
      const { who, id, ts, ...rest } = said(entry)
      const words = searchable({ who, id, ts, ...rest })
      const match = pattern.exec(words)
      if (match === null) continue
      found += 1
      const context = around(words, match.index, match[0].length)
      if (json) output.result(JSON.stringify({ file, id, ts, who, text: context }))
      else output.result(`${sanitiseLine(basename(file))}  ${sanitiseLine(id)}  ${who}: ${sanitiseLine(context)}`)
    }
  }
  if (found === 0) output.note(`nothing found in ${count(sessions.length, 'session')}`)
  return found > 0 ? exitCode.done : exitCode.failed
}

/** Without a large letter in it, large and small are the same. */
function patternOf(text: string, isRegex: boolean): RegExp {
  const source = isRegex ? text : text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
  const flags = /\p{Lu}/u.test(text) ? 'u' : 'iu'
  try {
    return new RegExp(source, flags)
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new UsageError(`this is no regular expression: ${error.message}`, 'sessions')
  }
}

/** What a line of a session says, if it is an entry; what is damaged is for verify to tell. */
function entryOf(line: string): EntryLine | undefined {
  if (!line.includes('"kind":"entry"')) return undefined
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'entry'
      ? (value as EntryLine)
      : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function around(text: string, at: number, length: number): string {
  const [from, to] = [Math.max(0, at - AROUND), Math.min(text.length, at + length + AROUND)]
  return `${from > 0 ? '…' : ''}${text.slice(from, to).toWellFormed()}${to < text.length ? '…' : ''}`
}

/** `reve sessions export` */
export async function exportSession(context: Context, command: Action<'export'>): Promise<number> {
  const { output, folder } = context
  const file = await sessionFile(folder, command.session)
  const view = await readSession(file)
  const title = sessionName(view) ?? basename(file)
  const text = written(view, command, title)
  if (command.target === undefined) {
    // A file of its own to whoever reads it; on a terminal, text of a model.
    if (command.format === 'md' && process.stdout.isTTY) output.result(sanitiseTerminal(text))
    else process.stdout.write(text)
    return exitCode.done
  }
  const target = resolve(folder, command.target)
  try {
    await writeFile(target, text, { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
    throw new UsageError(`${target} is there already; give another name, or remove it`, 'sessions')
  }
  if (command.json) output.result(JSON.stringify({ file: target, format: command.format }))
  else output.result(sanitiseLine(target))
  return exitCode.done
}

function written(view: SessionView, { format, lane }: Action<'export'>, title: string): string {
  switch (format) {
    case 'md':
      return toMarkdown(view, pathOf(view, lane), title)
    case 'json':
      return `${JSON.stringify({ session: view.header.id, title, entries: pathOf(view, lane).map(said) }, null, 2)}\n`
    case 'html':
      return toHtml(view, title)
    default:
      return format satisfies never
  }
}

function pathOf(view: SessionView, lane = 'main'): readonly EntryLine[] {
  if (lane !== 'main' && !view.lanes().includes(lane))
    throw new UsageError(`this session has no lane "${lane}"; it has ${view.lanes().join(', ')}`, 'sessions')
  return view.path(view.leaf(lane))
}
