import { join, resolve } from 'node:path'
import { agentRoot, newestFile } from '@reve/agent'
import { listSessions, salvageSession, verifySession } from '@reve/session-log'
import type { Command } from '../arguments.ts'
import { UsageError } from '../arguments.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'

/** `reve sessions` */
export async function sessions(
  context: Context,
  command: Extract<Command, { readonly type: 'sessions' }>,
): Promise<number> {
  const { output, folder } = context
  const directory = join(await agentRoot(folder), '.reve', 'sessions')
  switch (command.action) {
    case 'list': {
      const found = await listSessions(directory)
      if (command.json) output.result(JSON.stringify(found))
      else if (found.length === 0) output.note('this agent has no sessions yet')
      else {
        output.result(
          found
            .map((session) =>
              session.kind === 'broken'
                ? `${session.file}  (${session.problem.message})`
                : `${session.file}  ${session.modified}  ${session.bytes} bytes${session.name === undefined ? '' : `  ${session.name}`}`,
            )
            .join('\n'),
        )
      }
      return exitCode.done
    }
    case 'verify': {
      const file = command.file === undefined ? await newestFile(directory) : resolve(folder, command.file)
      if (file === undefined) throw new UsageError('this agent has no sessions to verify', 'sessions')
      const report = await verifySession(file)
      if (command.json) output.result(JSON.stringify(report))
      else {
        output.result(
          `${file}: ${report.ok ? 'good' : 'not good'}, ${report.entries} entries, ${report.records} records`,
        )
        for (const { line, message } of report.problems) output.result(`  line ${line}: ${message}`)
      }
      return report.ok ? exitCode.done : exitCode.corrupt
    }
    case 'salvage': {
      const report = await salvageSession(resolve(folder, command.file), resolve(folder, command.target))
      output.result(JSON.stringify(report))
      return exitCode.done
    }
    default:
      return command satisfies never
  }
}
