import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createHarness, type Harness } from '@reve/harness'
import type { Model, ModelRequest, UserMessage } from '@reve/providers/model'
import { openSession, type SessionLog } from '@reve/session-log'
import { onTestFinished } from 'vitest'

/** The texts that were said to the model, in their order. */
export const asked = (request: ModelRequest): readonly string[] =>
  request.messages.flatMap((message) => (message.role === 'user' ? [textOf(message)] : []))

export const textOf = ({ content }: UserMessage): string =>
  content.map((part) => (part.type === 'text' ? part.text : part.type)).join('')

/** A session in a file, opened as a process opens it. */
export async function session(
  model: Model,
  file = join(mkdtempSync(join(tmpdir(), 'session-')), 'main-1.jsonl'),
): Promise<{
  readonly harness: Harness
  readonly log: SessionLog
  readonly file: string
  readonly close: () => Promise<void>
}> {
  const log = await openSession(file, { create: { cwd: 'workspace' } })
  const harness = createHarness({ log, model, tools: [], system: 'Be brief.' })
  await harness.recover()
  const close = async (): Promise<void> => {
    await harness.close()
    await log.close()
  }
  onTestFinished(close)
  return { harness, log, file, close }
}
