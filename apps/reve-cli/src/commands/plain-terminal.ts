import { createInterface } from 'node:readline'
import { codeOf, messageOf } from '@reve/base'
import type { TerminalCommand } from '../arguments.ts'
import { agentHere, type Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { paint } from '../output.ts'
import { sayRecovery } from '../recovery-notes.ts'
import { createRunView } from '../run-view.ts'
import { sessionFile } from '../session-files.ts'

/** The conversation line by line, for terminals that can move no cursor (`TERM=dumb`): nothing is drawn twice. */
export async function plainTerminal(context: Context, command: TerminalCommand): Promise<number> {
  const { output, signal, folder } = context
  await using agent = await agentHere(context)
  const options = {
    ...(command.model !== undefined && { model: command.model }),
    ...(command.thinking !== undefined && { thinking: command.thinking }),
  }
  const open = (session: 'new' | 'newest' | { readonly file: string }) => agent.openSession({ session, ...options })
  await using session =
    command.session === undefined
      ? await open('newest').catch((error: unknown) => {
          if (codeOf(error) !== 'no_session') throw error
          return open('new')
        })
      : await open({ file: await sessionFile(folder, command.session) })
  const { harness } = session
  harness.subscribe(createRunView(output))
  sayRecovery(await harness.recover(), session, output)
  await using services = new AsyncDisposableStack()
  if (command.services) {
    services.use(agent.startHeartbeats(session))
    if (agent.info.channels.length > 0) services.use(agent.startChannels(session))
  }
  output.note('type a prompt and press Enter; /quit leaves')
  for await (const line of createInterface({ input: process.stdin, signal })) {
    const text = line.trim()
    if (text === '/quit' || text === '/exit') break
    if (text === '') continue
    for (const note of await agent.refresh()) output.note(paint('yellow', '  ! '), note)
    try {
      const { outcome, error, reason, text: answer } = await harness.prompt(text, { signal })
      if (outcome === 'completed') output.result(answer)
      else
        output.note(paint('red', 'reve: '), error?.message ?? `the run ${outcome}: ${reason ?? 'no reason was given'}`)
    } catch (error) {
      output.note(paint('red', 'reve: '), messageOf(error))
    }
  }
  // It is ours no more, and must not keep the process.
  process.stdin.unref()
  return signal.aborted ? exitCode.interrupted : exitCode.done
}
