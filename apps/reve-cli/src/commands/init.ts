import { resolve } from 'node:path'
import { scaffold } from '@reve/agent'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { machineHosts } from '../surroundings.ts'

const marks = { created: '  + ', unchanged: '  · ', changed: '  · ' } as const
const remarks = { created: '', unchanged: ' (unchanged)', changed: ' (changed; kept)' } as const

/** `reve init [dir]` */
export async function init(
  context: Context,
  options: { readonly folder: string; readonly json: boolean },
): Promise<number> {
  const { output, signal } = context
  const hosts = await machineHosts()
  // Ctrl-C reaches npm as well, and what it then does not say must not be written down as "there is none".
  signal.throwIfAborted()
  const report = await scaffold(resolve(context.folder, options.folder), hosts)
  if (options.json) {
    output.result(JSON.stringify(report))
    return exitCode.done
  }
  output.result(
    [
      `initialised ${report.root}`,
      ...report.entries.map(({ path, state }) => `${marks[state]}${path}${remarks[state]}`),
      '',
      'edit instructions.md, then run reve here',
    ].join('\n'),
  )
  return exitCode.done
}
