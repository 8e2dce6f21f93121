import { agentHere, type Context } from '../context.ts'
import { exitCode, exitCodeOf } from '../exit-codes.ts'

/** One word is shell text as it stands; several are each quoted, then joined, so that they arrive as they were typed. */
export const shellText = (words: readonly string[]): string =>
  words.length === 1 ? (words[0] ?? '') : words.map(quote).join(' ')

const quote = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

/** `reve exec <cmd...>`: the guest's exit code is the exit code, 125 is our own failure. */
export async function exec(context: Context, options: { readonly words: readonly string[] }): Promise<number> {
  const { output, signal } = context
  try {
    await using agent = await agentHere(context)
    const result = await agent.vm.exec({
      argv: ['sh', '-lc', shellText(options.words)],
      signal,
      maxOutputBytes: 0,
      // A program's own output is the user's to interpret: bytes go through as they are, like those of ssh.
      onOutput: (stream, chunk) => {
        output.clear()
        process[stream].write(chunk)
      },
    })
    output.clear()
    return result.exitCode
  } catch (error) {
    const code = exitCodeOf(error)
    if (code === exitCode.interrupted) return code
    throw new ExecFailure(error)
  }
}

/** Marks a failure of ours, so that its exit code is not taken for the guest's. */
export class ExecFailure extends Error {
  override readonly name = 'ExecFailure'
  constructor(cause: unknown) {
    super('reve exec failed', { cause })
  }
}
