import { sanitiseLine } from '@reve/base'
import type { RewindCommand } from '../arguments.ts'
import { agentHere, type Context } from '../context.ts'
import { entryNamed } from '../entries.ts'
import { exitCode } from '../exit-codes.ts'
import { sessionFile } from '../session-files.ts'
import { count } from '../table.ts'

/** `reve rewind <entry>` */
export async function rewind(context: Context, command: RewindCommand): Promise<number> {
  const { output, folder } = context
  const { files, session: word, lane } = command
  await using agent = await agentHere(context)
  await using session = await agent.openSession({
    session: word === undefined ? 'newest' : { file: await sessionFile(folder, word) },
    model: null,
  })
  await session.harness.recover()
  const entry = entryNamed(session.log, command.entry, 'rewind')
  const result = await session.rewind(entry, { files, ...(lane === undefined ? {} : { lane }) })
  if (command.json) output.result(JSON.stringify(result))
  else {
    const { written, removed, inTheWay } = result.files ?? { written: 0, removed: 0, inTheWay: [] }
    const about =
      result.files === undefined ? 'files as they are' : `${count(written, 'file')} written, ${removed} removed`
    output.result(`back at ${sanitiseLine(entry)}: ${about}; "reve run --continue" goes on from there`)
    for (const path of inTheWay) output.note(`left as it is, something that no checkpoint has is in its place: ${path}`)
  }
  return exitCode.done
}
