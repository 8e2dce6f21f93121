import { UsageError } from '../arguments.ts'
import { completionScript, shells } from '../completion-scripts.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'

/** `reve completion <shell>` */
export async function completion(
  { output }: Context,
  { shell }: { readonly shell: string | undefined },
): Promise<number> {
  const known = shells.find((each) => each === shell)
  if (known === undefined)
    throw new UsageError(
      shell === undefined
        ? `name a shell: ${shells.join(', ')}`
        : `no script for ${JSON.stringify(shell)}; there are ${shells.join(', ')}`,
      'completion',
    )
  output.result(completionScript(known).trimEnd())
  return exitCode.done
}
