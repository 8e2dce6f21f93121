import { codeOf, isReveError, sanitiseLine } from '@reve/base'
import { labels, listSessions, readSession } from '@reve/session-log'
import { basename } from 'node:path'
import { agentRoot, loadDefinition } from '@reve/agent/folder'
import { UsageError } from '../arguments.ts'
import { shells, type ListName } from '../command-table.ts'
import { candidates } from '../complete.ts'
import { completionScripts } from '../completion-scripts.ts'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { modelsHere } from '../models-here.ts'
import { newest, sessionsOf } from '../session-files.ts'
import { said } from '../transcript.ts'

type Candidate = { readonly word: string; readonly about: string }

/** Of the entries of a session, the last so many. */
const MOST_ENTRIES = 200

/** `reve completion <shell>`, and what its scripts ask. */
export async function completion(
  context: Context,
  { shell, line }: { readonly shell: string | undefined; readonly line: readonly string[] | undefined },
): Promise<number> {
  const { output } = context
  if (line !== undefined) {
    const { words, list, prefix = '' } = candidates(line)
    const all = [...words, ...(list === undefined ? [] : await listed(list, context))]
    // What a shell would have to cut at, or a terminal to interpret, is left out: a name that cannot be typed helps nobody.
    const fit = all.filter(({ word }) => word !== '' && sanitiseLine(word) === word)
    if (fit.length > 0) output.result(fit.map(({ word, about }) => lineOf(prefix + word, about)).join('\n'))
    return exitCode.done
  }
  const known = shells.find((each) => each === shell)
  if (known === undefined)
    throw new UsageError(
      shell === undefined
        ? `name a shell: ${shells.join(', ')}`
        : `no script for ${JSON.stringify(shell)}; there are ${shells.join(', ')}`,
      'completion',
    )
  output.result(completionScripts[known].trimEnd())
  return exitCode.done
}

const lineOf = (word: string, about: string): string => (about === '' ? word : `${word}\t${sanitiseLine(about, 60)}`)

/** Outside of an agent's folder, and in one that is not right, there is nothing to complete. */
async function listed(list: ListName, context: Context): Promise<readonly Candidate[]> {
  try {
    return await candidatesOf[list](context)
  } catch (error) {
    if (isReveError(error) || error instanceof UsageError || codeOf(error) !== undefined) return []
    throw error
  }
}

const candidatesOf = {
  sessions: async ({ folder }) =>
    (await listSessions(sessionsOf(await agentRoot(folder)))).map((session) => ({
      word: basename(session.file),
      about: session.kind === 'broken' ? '' : (session.name ?? session.title ?? ''),
    })),
  entries: async ({ folder }) => {
    const view = await readSession(await newest(folder))
    const named = labels(view)
    const path = view.path(view.leaf('main')).slice(-MOST_ENTRIES)
    return [
      ...[...named].map(([id, label]) => ({ word: id, about: label })),
      ...path.flatMap((entry) => {
        const { id, who, blocks } = said(entry)
        const [first] = blocks
        return named.has(id)
          ? []
          : [{ word: id, about: `${who} ${first !== undefined && 'text' in first ? first.text : ''}` }]
      }),
    ]
  },
  models: async (context) => (await modelsHere(context)).models.map(({ id }) => ({ word: id, about: '' })),
  tools: async ({ folder }) => {
    const { lua } = await loadDefinition(folder)
    await lua.close()
    return lua.program.tools.map(({ name, description }) => ({ word: name, about: description }))
  },
} as const satisfies Readonly<Record<ListName, (context: Context) => Promise<readonly Candidate[]>>>
