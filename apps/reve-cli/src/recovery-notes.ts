import type { AgentSession } from '@reve/agent'
import type { RecoveryReport } from '@reve/harness'
import { paint, type Output } from './output.ts'

/** Says what was found unfinished, and what became of it. */
export function sayRecovery(report: RecoveryReport, session: AgentSession, output: Output): void {
  if (session.log.repaired !== undefined) {
    output.note(
      paint('yellow', '↻ '),
      `the session's last line was incomplete and was ${session.log.repaired.kind === 'torn_tail_cut' ? 'cut' : 'completed'}`,
    )
  }
  for (const lane of report.lanes) {
    const where = lane.lane === 'main' ? '' : ` (lane ${lane.lane})`
    output.note(
      paint('yellow', '↻ '),
      `the last ${lane.operation}${where} was interrupted; it is closed and the conversation is whole again`,
    )
    for (const { toolName } of lane.unknown) {
      output.note(
        paint('yellow', '  '),
        `${toolName} was running: its outcome is unknown, it is not run again, and the model is told so`,
      )
    }
    for (const { toolName } of lane.replayed)
      output.note(paint('yellow', '  '), `${toolName} only reads: it was run again`)
    for (const message of lane.returned) {
      output.note(
        paint('yellow', '  '),
        'not delivered: ',
        message.content.map((part) => (part.type === 'text' ? part.text : `(${part.type})`)).join(' '),
      )
    }
  }
}
