import { mkdir, readFile, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { codeOf, messageOf, writeFileAtomic } from '@reve/base'
import * as v from 'valibot'
import { HeartbeatError } from './errors.ts'
import type { TaskStates } from './plan.ts'

const VERSION = 1

const text = v.string()
const moment = v.pipe(v.number(), v.finite())
const attempt = { id: text, due: moment, startedAt: moment, missed: v.pipe(v.number(), v.integer(), v.minValue(0)) }

const State = v.object({
  version: v.literal(VERSION),
  tasks: v.array(
    v.object({
      name: text,
      schedule: text,
      digest: text,
      next: v.exactOptional(moment),
      setAt: moment,
      attempt: v.exactOptional(v.object(attempt)),
      undelivered: v.exactOptional(v.object({ id: text, kind: v.picklist(['message', 'steer']), text })),
      past: v.array(
        v.object({
          ...attempt,
          endedAt: moment,
          outcome: v.picklist(['silence', 'message', 'steer', 'error', 'timeout', 'interrupted']),
          detail: v.exactOptional(text),
        }),
      ),
    }),
  ),
})
const Versioned = v.object({ version: v.number() })

/**
 * Reads the states of all tasks; none when there is no file yet. A file that is damaged is put aside, and told in `problem`: tasks are
 * then due one step from now.
 *
 * @throws HeartbeatError `newer_state`, `io`.
 */
export async function readStates(file: string): Promise<{ readonly states: TaskStates; readonly problem?: string }> {
  let source: string
  try {
    source = await readFile(file, 'utf8')
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return { states: new Map() }
    throw new HeartbeatError('io', `${file} cannot be read: ${messageOf(cause)}`, { cause })
  }
  const json = v.safeParse(v.pipe(v.string(), v.parseJson()), source)
  const versioned = v.safeParse(Versioned, json.output)
  if (versioned.success && versioned.output.version > VERSION) {
    throw new HeartbeatError(
      'newer_state',
      `${file} is of version ${versioned.output.version}, this program knows ${VERSION}; it was left as it is. Use the newer program`,
    )
  }
  const read = v.safeParse(State, json.output)
  if (read.success) return { states: new Map(read.output.tasks.map(({ name, ...state }) => [name, state])) }
  const aside = `${file}.damaged`
  await rename(file, aside).catch((cause: unknown) => {
    throw new HeartbeatError('io', `${file} is damaged and cannot be put aside: ${messageOf(cause)}`, { cause })
  })
  return { states: new Map(), problem: `${file} was damaged; it is at ${aside} now, and every schedule begins anew` }
}

/**
 * Writes the states, whole and synced (0600).
 *
 * @throws HeartbeatError `io`.
 */
export async function writeStates(file: string, states: TaskStates): Promise<void> {
  const tasks = [...states].map(([name, state]) => ({ name, ...state }))
  try {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 })
    await writeFileAtomic(file, `${JSON.stringify({ version: VERSION, tasks }, undefined, 1)}\n`)
  } catch (cause) {
    throw new HeartbeatError('io', `${file} cannot be written: ${messageOf(cause)}`, { cause })
  }
}
