import { resolve } from 'node:path'
import { scaffold } from '@reve/agent'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { machineHosts } from '../surroundings.ts'

const marks = { created: '  + ', unchanged: '  · ', edited: '  · ' } as const
const remarks = { created: '', unchanged: ' (unchanged)', edited: ' (edited; kept)' } as const

/** `reve init [dir]` */
export async function init(
  context: Context,
  options: { readonly folder: string; readonly json: boolean },
): Promise<number> {
  const { output } = context
  const report = await scaffold(resolve(context.folder, options.folder), await machineHosts())
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
