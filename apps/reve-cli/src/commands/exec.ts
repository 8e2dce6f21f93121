import { agentHere, type Context } from '../context.ts'
import { writeThrough } from '../standard-streams.ts'

/** One word is shell text as it stands; several are each quoted, then joined, so that they arrive as they were typed. */
export const shellText = (words: readonly string[]): string =>
  words.length === 1 ? (words[0] ?? '') : words.map(quote).join(' ')

const quote = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

/** `reve exec <cmd...>`: the guest's exit code is the exit code. */
export async function exec(context: Context, options: { readonly words: readonly string[] }): Promise<number> {
  const { output, signal } = context
  await using agent = await agentHere(context)
  const result = await agent.vm.exec({
    argv: ['sh', '-lc', shellText(options.words)],
    signal,
    maxOutputBytes: 0,
    // A program's own output is the user's to interpret: bytes go through as they are, like those of ssh.
    onOutput: (stream, chunk) => {
      output.clear()
      writeThrough(stream, chunk)
    },
  })
  output.clear()
  return result.exitCode
}
