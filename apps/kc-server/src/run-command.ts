import { isReveError, messageOf, sanitiseTerminal } from '@reve/base'
import { UsageError, type Command } from './arguments.ts'
import { exitCodeOf } from './exit-codes.ts'

export type WorkingCommand = Exclude<Command, { readonly type: 'help' | 'version' }>

/** What every command gets. Results go to standard output, the rest to standard error; both are sanitised. */
export type Context = {
  readonly env: NodeJS.ProcessEnv
  readonly version: string
  readonly result: (text: string) => void
  readonly note: (text: string) => void
}

/** Runs one command with this process's surroundings and gives its exit code; typed errors become messages here. */
export async function runCommand(command: WorkingCommand, version: string): Promise<number> {
  const context: Context = {
    env: process.env,
    version,
    result: (text) => void process.stdout.write(`${sanitiseTerminal(text)}\n`),
    note: (text) => void process.stderr.write(`${sanitiseTerminal(text)}\n`),
  }
  try {
    return await perform(command, context)
  } catch (error) {
    if (error instanceof UsageError) throw error
    context.note(`kc: ${isDefect(error) ? (error.stack ?? error.message) : messageOf(error)}`)
    if (isReveError(error) && error.hint !== undefined) context.note(error.hint)
    return exitCodeOf(error)
  }
}

/** What is neither a refusal of ours nor one of the system is a defect; its stack helps whoever mends it. */
const isDefect = (error: unknown): error is Error =>
  error instanceof Error && !isReveError(error) && !('syscall' in error)

async function perform(command: WorkingCommand, context: Context): Promise<number> {
  switch (command.type) {
    case 'init':
      return (await import('./commands/init.ts')).init(context, command)
    case 'seat':
      return (await import('./commands/seat.ts')).seat(context, command)
    case 'serve':
      return (await import('./commands/serve.ts')).serve(context, command)
    case 'fsck':
      return (await import('./commands/fsck.ts')).fsck(context, command)
    default:
      return command satisfies never
  }
}
