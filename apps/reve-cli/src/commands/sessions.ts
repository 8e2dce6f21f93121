import { basename } from 'node:path'
import { agentRoot } from '@reve/agent/folder'
import { isReveError, sanitiseLine } from '@reve/base'
import {
  forkSession,
  labelDraft,
  listSessions,
  nameDraft,
  openSession,
  readSession,
  salvageSession,
  sessionName,
  type SessionSummary,
  type VerifyReport,
  verifySession,
} from '@reve/session-log'
import { UsageError, type SessionsCommand } from '../arguments.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { entryNamed } from '../entries.ts'
import { newest, sessionFile, sessionsOf, targetFile } from '../session-files.ts'
import { count, size, table } from '../table.ts'
import { search } from './search.ts'
import { exportSession, show } from './transcripts.ts'

type Action<Name extends SessionsCommand['action']> = Extract<SessionsCommand, { readonly action: Name }>

/** `reve sessions` */
export function sessions(context: Context, command: SessionsCommand): Promise<number> {
  switch (command.action) {
    case 'list':
      return list(context, command)
    case 'verify':
      return verify(context, command)
    case 'salvage':
      return salvage(context, command)
    case 'fork':
      return fork(context, command)
    case 'name':
      return name(context, command)
    case 'label':
      return label(context, command)
    case 'show':
      return show(context, command)
    case 'search':
      return search(context, command)
    case 'export':
      return exportSession(context, command)
    default:
      return command satisfies never
  }
}

async function list({ output, folder }: Context, { json }: Action<'list'>): Promise<number> {
  const found = await listSessions(sessionsOf(await agentRoot(folder)))
  if (json) output.result(JSON.stringify(found))
  else if (found.length === 0) output.note('this agent has no sessions yet')
  else output.result(table(found.map(row)))
  return exitCode.done
}

async function verify({ output, folder }: Context, { session, json }: Action<'verify'>): Promise<number> {
  const file = session === undefined ? await newest(folder) : await sessionFile(folder, session)
  const report = await verifySession(file)
  if (json) output.result(JSON.stringify(report))
  else {
    output.result(`${sanitiseLine(file)}: ${verdict(report)}`)
    for (const { line, message } of report.problems) output.result(`  line ${line}: ${sanitiseLine(message)}`)
  }
  return report.ok ? exitCode.done : exitCode.corrupt
}

async function salvage({ output, folder }: Context, command: Action<'salvage'>): Promise<number> {
  const source = await sessionFile(folder, command.session)
  const report = await salvageSession(source, await targetFile(folder, command.target))
  const { target, lines, droppedBytes, problem } = report
  if (command.json) output.result(JSON.stringify(report))
  else {
    const left = droppedBytes === 0 ? 'all there was' : `${size(droppedBytes)} left behind`
    output.result(`${sanitiseLine(target)}: ${count(lines, 'line')} kept, ${left}`)
    if (problem !== undefined) output.result(`  line ${problem.line}: ${sanitiseLine(problem.message)}`)
  }
  return exitCode.done
}

async function fork({ output, folder }: Context, command: Action<'fork'>): Promise<number> {
  const { session, target, at, lane } = command
  const source = await sessionFile(folder, session)
  const report = await forkSession(source, await targetFile(folder, target), {
    ...(at === undefined ? {} : { at: entryNamed(await readSession(source), at, 'sessions') }),
    ...(lane === undefined ? {} : { lane }),
  })
  const { forkedFrom } = report
  if (command.json) output.result(JSON.stringify(report))
  else {
    const upTo = forkedFrom.entryId === null ? '' : ` up to ${sanitiseLine(forkedFrom.entryId)}`
    output.result(
      `${sanitiseLine(report.target)}: ${count(report.entries, 'entry', 'entries')} of ${sanitiseLine(forkedFrom.id)}${upTo}`,
    )
  }
  return exitCode.done
}

async function name({ output, folder }: Context, command: Action<'name'>): Promise<number> {
  const draft = draftOf(() => nameDraft(command.name))
  await using log = await openSession(await sessionFile(folder, command.session))
  if (log.repaired !== undefined) output.note("the session's last line was incomplete and was mended")
  await log.append([draft], { durability: 'fsync' })
  const given = sessionName(log) ?? ''
  if (command.json) output.result(JSON.stringify({ file: log.file, name: given }))
  else output.result(`${sanitiseLine(log.file)}: ${sanitiseLine(given)}`)
  return exitCode.done
}

async function label({ output, folder }: Context, command: Action<'label'>): Promise<number> {
  const { label: given = null } = command
  await using log = await openSession(await sessionFile(folder, command.session))
  if (log.repaired !== undefined) output.note("the session's last line was incomplete and was mended")
  const id = entryNamed(log, command.entry, 'sessions')
  if (log.entry(id) === undefined) throw new UsageError(`this session has no entry ${JSON.stringify(id)}`, 'sessions')
  await log.append([draftOf(() => labelDraft(id, given))], { durability: 'fsync' })
  if (command.json) output.result(JSON.stringify({ file: log.file, entryId: id, label: given }))
  else output.result(`${sanitiseLine(id)}: ${given === null ? 'no label' : sanitiseLine(given)}`)
  return exitCode.done
}

/** What cannot be a name or a label is a mistake in the command line. */
function draftOf(make: () => ReturnType<typeof nameDraft>): ReturnType<typeof nameDraft> {
  try {
    return make()
  } catch (error) {
    if (isReveError(error)) throw new UsageError(error.message, 'sessions')
    throw error
  }
}

function row(session: SessionSummary): readonly string[] {
  const when = `${session.modified.slice(0, 16).replace('T', ' ')}Z`
  return [sanitiseLine(basename(session.file)), when, size(session.bytes).padStart(9), sanitiseLine(known(session), 80)]
}

/** What a human knows a session by: its name, or its first prompt in quotes. What is broken is told at length by verify. */
function known(session: SessionSummary): string {
  if (session.kind === 'broken') return `(${session.problem.code.replaceAll('_', ' ')})`
  if (session.name !== undefined) return session.name
  return session.title === undefined ? '' : `"${session.title}"`
}

function verdict({ ok, entries, records, tail }: VerifyReport): string {
  const found = `${count(entries, 'entry', 'entries')}, ${count(records, 'record')}`
  if (!ok) return `not good, ${found}`
  return tail === 'whole'
    ? `good, ${found}`
    : `good, ${found}; the last line is incomplete, which opening the session mends`
}
