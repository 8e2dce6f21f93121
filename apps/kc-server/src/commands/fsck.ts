import { openStore, StoreError } from '@reve/content-store'
import { ConfigurationError, rootOf } from '../environment.ts'
import { exitCode } from '../exit-codes.ts'
import type { Context } from '../run-command.ts'

/** `kc fsck` */
export async function fsck(
  { env, result }: Context,
  command: { readonly root: string | undefined; readonly json: boolean },
): Promise<number> {
  const root = rootOf(env, command.root)
  await using store = await openStore(root, { create: false }).catch((error: unknown) => {
    if (!(error instanceof StoreError) || error.code !== 'not_a_store') throw error
    throw new ConfigurationError('bad_configuration', `${error.message}; "kc init" makes a computer`, { cause: error })
  })
  const report = await store.fsck()
  if (command.json) result(JSON.stringify(report))
  else {
    result(`${report.ok ? 'good' : 'not good'}: ${report.objects} objects read, ${report.problems.length} problems`)
    for (const { message } of report.problems) result(`  ${message}`)
  }
  return report.ok ? exitCode.done : exitCode.corrupt
}
