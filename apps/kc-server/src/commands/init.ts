import { initComputer } from '@reve/mcp-server'
import { rootOf } from '../environment.ts'
import { exitCode } from '../exit-codes.ts'
import type { Context } from '../run-command.ts'

/** `kc init` */
export async function init(
  { env, result, note }: Context,
  command: { readonly root: string | undefined },
): Promise<number> {
  const root = rootOf(env, command.root)
  const { created } = await initComputer(root)
  result(created ? `made a computer in ${root}` : `there is a computer in ${root}; nothing was changed`)
  if (created) note('next: kc seat create <name>, then kc serve')
  return exitCode.done
}
