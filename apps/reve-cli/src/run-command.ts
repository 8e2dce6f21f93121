import { isReveError, messageOf } from '@reve/base'
import { UsageError, type Command } from './arguments.ts'
import type { Context } from './context.ts'
import { exitCode, exitCodeOf } from './exit-codes.ts'
import { createOutput, paint, type Output } from './output.ts'
import { isBrokenPipe } from './standard-streams.ts'

type WorkingCommand = Exclude<Command, { readonly type: 'help' | 'version' }>

/**
 * Runs one command with this process's surroundings and gives its exit code; typed errors become messages here.
 *
 * @param unread aborted when nobody reads the output any more.
 */
export async function runCommand(command: WorkingCommand, unread: AbortSignal): Promise<number> {
  const output = createOutput(process.env)
  const signal = AbortSignal.any([unread, interruptSignal(output)])
  try {
    return await perform(command, { folder: currentFolder(), env: process.env, output, signal })
  } catch (error) {
    output.clear()
    if (error instanceof UsageError) throw error
    const stopped = isBrokenPipe(error) || (signal.aborted && isAbortError(error))
    const code = stopped ? exitCode.interrupted : exitCodeOf(error)
    if (code === exitCode.interrupted) return code
    if (isReveError(error)) {
      output.note(paint('red', 'reve: '), error.message)
      if (error.hint !== undefined && !error.message.includes(error.hint)) output.note(paint('dim', error.hint))
    } else {
      output.note(paint('red', 'reve: '), isDefect(error) ? (error.stack ?? error.message) : messageOf(error))
    }
    // So that a failure of ours is not taken for the guest's code.
    return command.type === 'exec' ? exitCode.execFailed : code
  }
}

async function perform(command: WorkingCommand, context: Context): Promise<number> {
  switch (command.type) {
    case 'terminal':
      return (await import('./commands/terminal.ts')).terminal(context, command)
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
    case 'serve':
      return (await import('./commands/serve.ts')).serve(context, command)
    case 'image':
      return (await import('./commands/image.ts')).image(context, command)
    case 'rewind':
      return (await import('./commands/rewind.ts')).rewind(context, command)
    case 'completion':
      return (await import('./commands/completion.ts')).completion(context, command)
    case 'doctor':
      return (await import('./commands/doctor.ts')).doctor(context, command)
    default:
      return command satisfies never
  }
}

/** What Node's own functions end with when their signal fires. */
const isAbortError = (error: unknown): boolean => error instanceof Error && error.name === 'AbortError'

/** What is neither one of our refusals nor one of the operating system's; where it was thrown helps whoever mends it. */
const isDefect = (error: unknown): error is Error => error instanceof Error && !('syscall' in error)

function currentFolder(): string {
  try {
    return process.cwd()
  } catch (error) {
    throw new UsageError(`the current folder cannot be used, was it removed? (${messageOf(error)})`)
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
