import { addAbortSignal } from 'node:stream'
import { text as readAll } from 'node:stream/consumers'
import { newestFile, wasInterrupted, type AgentSession } from '@reve/agent'
import { isReveError, messageOf } from '@reve/base'
import type { RecoveryReport, RunResult } from '@reve/harness'
import { join } from 'node:path'
import { UsageError, type Command } from '../arguments.ts'
import { agentHere, type Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { paint, type Output } from '../output.ts'
import { sayRecovery } from '../recovery-notes.ts'
import { createRunView } from '../run-view.ts'
import { sessionFile } from '../session-files.ts'

type RunCommand = Extract<Command, { readonly type: 'run' }>

/** `reve run` */
export async function run(context: Context, options: RunCommand): Promise<number> {
  const { output, signal } = context
  const prompt = await promptOf(options, signal)
  await using agent = await agentHere(context)
  if (!options.resume) await mentionInterrupted(agent.info.root, output)
  for (const problem of (await agent.skills()).problems) output.note(paint('yellow', '  ! '), `left out: ${problem}`)
  await using session = await agent.openSession({
    session:
      options.session !== undefined
        ? { file: await sessionFile(context.folder, options.session) }
        : options.resume
          ? 'newest'
          : 'new',
    ...(options.thinking === undefined ? {} : { thinking: options.thinking }),
    ...(options.model === undefined ? {} : { model: options.model }),
    ...(options.maxTurns === undefined ? {} : { maxTurns: options.maxTurns }),
  })
  const { harness } = session
  if (options.json) harness.subscribe((event) => output.result(JSON.stringify(event)))
  else harness.subscribe(createRunView(output))

  const recovery = await recovered(session, context)
  if (!options.json) sayRecovery(recovery, session, output)

  // Nothing is written of a prompt that comes too late, so nothing must be said to be kept of it.
  signal.throwIfAborted()
  const result = await (async (): Promise<RunResult | undefined> => {
    if (prompt !== undefined) return harness.prompt(prompt, { signal })
    try {
      return await harness.continue({ signal })
    } catch (error) {
      if (isReveError(error) && error.code === 'nothing_to_continue') return undefined
      throw error
    }
  })()
  if (result === undefined) {
    output.note('nothing to continue: the newest session ended in order; give it a prompt: reve run --continue "…"')
    return exitCode.done
  }
  const refusal = session.refusal()
  if (refusal !== undefined) throw refusal
  return conclude(result, options, output)
}

/** Recovery may run a tool again that only reads; Ctrl-C ends that as it ends a run. */
async function recovered({ harness }: AgentSession, { signal, output }: Context): Promise<RecoveryReport> {
  const stop = (): void => void harness.abort().catch((error: unknown) => output.note(messageOf(error)))
  signal.addEventListener('abort', stop)
  try {
    return await harness.recover()
  } finally {
    signal.removeEventListener('abort', stop)
  }
}

function conclude(result: RunResult, options: RunCommand, output: Output): number {
  switch (result.outcome) {
    case 'completed':
      if (!options.json) output.result(result.text)
      if (result.reason === 'length') {
        output.note(
          paint('yellow', '  ! '),
          'the answer ends where the model may write no more at once (maxTokens in models.yml); go on with: reve run --continue "go on"',
        )
      }
      return exitCode.done
    case 'aborted':
      output.note(paint('yellow', 'stopped'), '; nothing is lost, go on with: reve run --continue')
      return exitCode.interrupted
    case 'failed':
    case 'rejected':
      output.note(
        paint('red', 'reve: '),
        result.error?.message ?? `the run ${result.outcome}: ${result.reason ?? 'no reason was given'}`,
      )
      return exitCode.failed
    default:
      return result.outcome satisfies never
  }
}

async function promptOf({ prompt, stdin, resume }: RunCommand, signal: AbortSignal): Promise<string | undefined> {
  // `--continue` alone goes on with what there is, whatever standard input is.
  if (resume && prompt === undefined && !stdin) return undefined
  const reads = stdin || (prompt === undefined && !process.stdin.isTTY)
  const parts = [prompt, reads ? await readAll(addAbortSignal(signal, process.stdin)) : undefined]
  const text = parts.filter((part) => part !== undefined && part.trim() !== '').join('\n\n')
  if (text !== '') return text
  throw new UsageError('there is no prompt: give it as an argument or on standard input', 'run')
}

/** A new session beside an unfinished one is fine; that the other one waits, if it does, should be known. */
async function mentionInterrupted(root: string, output: Output): Promise<void> {
  const file = await newestFile(join(root, '.reve', 'sessions'))
  if (file !== undefined && (await wasInterrupted(file).catch(() => false))) {
    output.note(
      paint('yellow', '  ! '),
      'the last session has an unfinished run: another process is at it, or it was interrupted and "reve run --continue" picks it up. This is a new one.',
    )
  }
}
