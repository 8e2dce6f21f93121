import { mkdir, readdir } from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { Harness } from '@reve/harness'
import { createSession, openSession, readSession, restateName, type SessionLog } from '@reve/session-log'
import { AgentError } from './errors.ts'

export type OpenSession = { readonly log: SessionLog; readonly harness: Harness }

/** `main-<UTC>-<id>.jsonl`: sorts by time, to the millisecond, so that of two short runs the later one is the newest. */
const sessionFile = /^main-.*\.jsonl$/

/** Makes a new session in `folder` (0700). */
export async function newSession(folder: string, now: () => number = Date.now): Promise<SessionLog> {
  return createSession(await newSessionFile(folder, now), { cwd: 'workspace', now })
}

/** A path for a session that will be the newest of `folder` (made 0700), the one that is continued. */
export async function newSessionFile(folder: string, now: () => number = Date.now): Promise<string> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const at = new Date(now()).toISOString().replaceAll(/[-:.]/g, '')
  return join(folder, `main-${at}-${randomBytes(4).toString('hex')}.jsonl`)
}

/** Opens the newest session of `folder` for writing. */
export async function newestSession(folder: string, now: () => number = Date.now): Promise<SessionLog> {
  const file = await newestFile(folder)
  if (file === undefined) {
    throw new AgentError('no_session', 'this agent has no session to continue; start one with: reve run "…"')
  }
  return continuedSession(file, now)
}

/** Opens a session for writing. */
export async function continuedSession(file: string, now: () => number = Date.now): Promise<SessionLog> {
  const log = await openSession(file, { now })
  // The one that wrote last may have been killed before it could.
  await restateName(log)
  return log
}

/** Path of the newest session of `folder`, if there is one. */
export async function newestFile(folder: string): Promise<string | undefined> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  const newest = names
    .filter((name) => sessionFile.test(name))
    .toSorted()
    .at(-1)
  return newest === undefined ? undefined : join(folder, newest)
}

/** Whether the session at `file` has an operation that never finished; reads without a lock. */
export async function wasInterrupted(file: string): Promise<boolean> {
  const view = await readSession(file)
  const open = new Set<string>()
  for (const record of view.records()) {
    const { runId } = record
    if (typeof runId !== 'string') continue
    if (record.type === 'operation_started') open.add(runId)
    if (record.type === 'operation_finished') open.delete(runId)
  }
  return open.size > 0
}
