import { openStore } from '@reve/content-store'
import { rootOf } from '../environment.ts'
import { exitCode } from '../exit-codes.ts'
import type { Context } from '../run-command.ts'

/** `kc fsck` */
export async function fsck(
  { env, result }: Context,
  command: { readonly root: string | undefined; readonly json: boolean },
): Promise<number> {
  await using store = await openStore(rootOf(env, command.root), { create: false })
  const report = await store.fsck()
  if (command.json) result(JSON.stringify(report))
  else {
    result(`${report.ok ? 'good' : 'not good'}: ${report.objects} objects read, ${report.problems.length} problems`)
    for (const { message } of report.problems) result(`  ${message}`)
  }
  return report.ok ? exitCode.done : exitCode.corrupt
}
