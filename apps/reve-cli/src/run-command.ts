import { isReveError, messageOf } from '@reve/base'
import { UsageError, type Command } from './arguments.ts'
import type { Context } from './context.ts'
import { exitCode, exitCodeOf } from './exit-codes.ts'
import { createOutput, paint, type Output } from './output.ts'

type WorkingCommand = Exclude<Command, { readonly type: 'help' | 'version' }>

/** Runs one command with this process's surroundings and gives its exit code; typed errors become messages here. */
export async function runCommand(command: WorkingCommand): Promise<number> {
  const output = createOutput(process.env)
  const context: Context = { folder: process.cwd(), env: process.env, output, signal: interruptSignal(output) }
  try {
    return await perform(command, context)
  } catch (error) {
    output.clear()
    if (error instanceof UsageError) throw error
    const cause = error instanceof Error && error.name === 'ExecFailure' ? error.cause : error
    if (!isReveError(cause)) {
      // Not one of our refusals: a defect. What it says helps whoever mends it.
      output.note(paint('red', 'reve: '), cause instanceof Error ? (cause.stack ?? cause.message) : messageOf(cause))
      return cause === error ? exitCode.failed : exitCode.execFailed
    }
    output.note(paint('red', 'reve: '), cause.message)
    if (cause.hint !== undefined) output.note(paint('dim', cause.hint))
    return cause === error ? exitCodeOf(cause) : exitCode.execFailed
  }
}

async function perform(command: WorkingCommand, context: Context): Promise<number> {
  switch (command.type) {
    case 'init':
      return (await import('./commands/init.ts')).init(context, command)
    case 'info':
      return (await import('./commands/info.ts')).info(context, command)
    case 'exec':
      return (await import('./commands/exec.ts')).exec(context, command)
    case 'tool':
      return (await import('./commands/tool.ts')).tool(context, command)
    case 'run':
      return (await import('./commands/run.ts')).run(context, command)
    case 'sessions':
      return (await import('./commands/sessions.ts')).sessions(context, command)
    case 'doctor':
      return (await import('./commands/doctor.ts')).doctor(context, command)
    default:
      return command satisfies never
  }
}

/** The first Ctrl-C or SIGTERM asks the work to stop; the second one ends the process as it is. */
function interruptSignal(output: Output): AbortSignal {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) {
        output.clear()
        process.exit(exitCode.interrupted)
      }
      controller.abort()
    })
  }
  return controller.signal
}
