import { writeFile } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import { codeOf, sanitiseLine, sanitiseTerminal } from '@reve/base'
import { type EntryLine, readSession, sessionName, type SessionView } from '@reve/session-log'
import { UsageError, type SessionsCommand } from '../arguments.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { toHtml } from '../export-html.ts'
import { toMarkdown } from '../export-markdown.ts'
import { newest, sessionFile } from '../session-files.ts'
import { labelled, type Block, type Said } from '../transcript.ts'

type Action<Name extends SessionsCommand['action']> = Extract<SessionsCommand, { readonly action: Name }>

/** Lines of one piece that are shown; the whole is in the export. */
const SHOWN_LINES = 20

/** `reve sessions show` */
export async function show(context: Context, { session, lane, json }: Action<'show'>): Promise<number> {
  const { output, folder } = context
  const view = await readSession(session === undefined ? await newest(folder) : await sessionFile(folder, session))
  const path = labelled(view, pathOf(view, lane))
  if (json) output.result(JSON.stringify(path))
  else if (path.length === 0) output.note('nothing was said there yet')
  else output.result(path.map(entryText).join('\n\n'))
  return exitCode.done
}

function entryText({ who, ts, id, label, blocks }: Said & { readonly label?: string }): string {
  const head = `${who} · ${ts} · ${id}${label === undefined ? '' : ` · [${label}]`}`
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

/** `reve sessions export` */
export async function exportSession(context: Context, command: Action<'export'>): Promise<number> {
  const { output, folder } = context
  const file = await sessionFile(folder, command.session)
  if (command.target === undefined) {
    const text = await exported(file, command)
    // A file of its own to whoever reads it; on a terminal, text of a model.
    process.stdout.write(process.stdout.isTTY ? sanitiseTerminal(text) : text)
    return exitCode.done
  }
  const target = await writeExport(file, resolve(folder, command.target), command)
  if (command.json) output.result(JSON.stringify({ file: target, format: command.format }))
  else output.result(sanitiseLine(target))
  return exitCode.done
}

type Form = Pick<Action<'export'>, 'format' | 'lane'>

async function exported(file: string, form: Form): Promise<string> {
  const view = await readSession(file)
  return written(view, form, sessionName(view) ?? basename(file))
}

/** Writes a session to a new file, and gives its path. */
export async function writeExport(file: string, target: string, form: Form): Promise<string> {
  const text = await exported(file, form)
  try {
    await writeFile(target, text, { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
    throw new UsageError(`${target} is there already; give another name, or remove it`, 'sessions')
  }
  return target
}

function written(view: SessionView, { format, lane }: Form, title: string): string {
  switch (format) {
    case 'md':
      return toMarkdown(view, pathOf(view, lane), title)
    case 'json':
      return `${JSON.stringify({ session: view.header.id, title, entries: labelled(view, pathOf(view, lane)) }, null, 2)}\n`
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
