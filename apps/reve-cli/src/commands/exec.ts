import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import type { Agent } from '@reve/agent'
import { codeOf } from '@reve/base'
import type { ExecResult } from '@reve/sandbox-microvm'
import { agentHere, type Context } from '../context.ts'
import { passLineFeeds } from '../host-process.ts'

/** One word is shell text as it stands; several are each quoted, then joined, so that they arrive as they were typed. */
export const shellText = (words: readonly string[]): string =>
  words.length === 1 ? (words[0] ?? '') : words.map(quote).join(' ')

const quote = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

/** `reve exec <cmd...>`: input, output and exit code are the guest's; on a terminal it has one. */
export async function exec(
  context: Context,
  options: { readonly words: readonly string[]; readonly wait: boolean },
): Promise<number> {
  const { output, signal } = context
  await using agent = await agentHere(context)
  const argv = ['sh', '-lc', shellText(options.words)]
  // Until it is up, Ctrl-C is ours and progress may be drawn.
  await (options.wait ? startWhenFree(agent, context) : agent.vm.start({ signal }))
  output.clear()
  const { exitCode } =
    process.stdin.isTTY && process.stdout.isTTY
      ? await onTerminal(agent, argv, context)
      : await onPipes(agent, argv, signal)
  output.clear()
  return exitCode
}

const betweenTriesMs = 500

/** Starts the VM as soon as no other process has it. */
async function startWhenFree(agent: Agent, { output, signal }: Context): Promise<void> {
  for (;;) {
    try {
      return await agent.vm.start({ signal })
    } catch (error) {
      if (codeOf(error) !== 'busy') throw error
      output.status('work', 'another process has the microVM; waiting until it lets it go')
      await setTimeout(betweenTriesMs, undefined, { signal })
    }
  }
}

/** A program's own output is the user's to interpret: bytes go through as they are, like those of ssh, as fast as they are read. */
function passOn(stream: 'stdout' | 'stderr', chunk: Uint8Array): void | Promise<void> {
  const taken = process[stream].write(chunk)
  return taken ? undefined : once(process[stream], 'drain').then(() => undefined)
}

function onPipes(agent: Agent, argv: readonly string[], signal: AbortSignal): Promise<ExecResult> {
  // A terminal that only feeds input keeps its own line editing; who has none to give is not waited for.
  return agent.vm.exec({ argv, stdin: process.stdin, signal, maxOutputBytes: 0, onOutput: passOn })
}

/** The guest's terminal is ours: keys go as they are typed, Ctrl-C too. */
async function onTerminal(agent: Agent, argv: readonly string[], { env, signal }: Context): Promise<ExecResult> {
  const { stdin, stdout } = process
  const size = () => ({ cols: stdout.columns || 80, rows: stdout.rows || 24 })
  const handle = agent.vm.spawn({
    argv,
    pty: { ...size(), term: env['TERM'] || 'xterm-256color' },
    signal,
    maxOutputBytes: 0,
    onOutput: passOn,
  })
  const type = (bytes: Uint8Array): void => void handle.write(bytes)
  const resize = (): void => handle.resize(size())
  stdin.setRawMode(true)
  passLineFeeds()
  stdin.on('data', type)
  stdout.on('resize', resize)
  try {
    return await handle.result
  } finally {
    stdout.off('resize', resize)
    stdin.off('data', type)
    stdin.setRawMode(false)
    stdin.pause()
  }
}
