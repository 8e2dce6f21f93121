import { homedir, tmpdir } from 'node:os'
import { basename, resolve } from 'node:path'
import { openAgent } from '@reve/agent'
import type { TerminalCommand } from '../arguments.ts'
import { UsageError } from '../arguments.ts'
import type { Context } from '../context.ts'
import { exitCode, exitCodeOf } from '../exit-codes.ts'
import { helpText } from '../help.ts'
import { editInTerminal } from '../host-process.ts'
import { sessionFile } from '../session-files.ts'
import { surroundings, vmHost } from '../surroundings.ts'
import { App } from '../tui/app.ts'
import { plainTerminal } from './plain-terminal.ts'
import { writeExport } from './transcripts.ts'

/** Bare `reve`. */
export async function terminal(context: Context, command: TerminalCommand): Promise<number> {
  const { stdin, stdout } = process
  if (!stdin.isTTY || !stdout.isTTY) {
    const isBare = process.argv.length <= 2
    if (!isBare) throw new UsageError('this is no terminal; without one: reve run "…"', 'terminal')
    stdout.write(helpText(undefined))
    return exitCode.done
  }
  if (context.env['TERM'] === 'dumb') return plainTerminal(context, command)
  const { folder, env, signal } = context
  const around = surroundings(env)
  const { model, thinking, theme, services } = command
  const session = command.session === undefined ? undefined : await sessionFile(folder, command.session)
  const editor = env['VISUAL'] || env['EDITOR']
  const app = new App({
    openAgent: ({ onVmEvent, onEgress, onNotice, onLog }) =>
      openAgent(folder, { env: around.env, vm: vmHost(around, onVmEvent), onEgress, onNotice, onLog }),
    stdin,
    stdout,
    process,
    env: around.env,
    home: homedir(),
    temporaryFolder: tmpdir(),
    editFile: editor ? (file) => editInTerminal(editor, file) : undefined,
    signal,
    now: Date.now,
    options: {
      services,
      ...(theme !== undefined && { theme }),
      ...(model !== undefined && { model }),
      ...(thinking !== undefined && { thinking }),
      ...(session !== undefined && { session }),
    },
    beside: {
      exportSession: (file, format, target) =>
        writeExport(file, resolve(folder, target ?? `${basename(file, '.jsonl')}.${format}`), {
          format,
          lane: undefined,
        }),
    },
  })
  const { reason, refused } = await app.run()
  if (refused !== undefined) return exitCodeOf(refused)
  return reason === 'quit' ? exitCode.done : exitCode.interrupted
}
