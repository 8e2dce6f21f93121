import { createIdSource } from '@reve/base'
import { createHarness, type Harness } from '@reve/harness'
import { openSession, type SessionLog } from '@reve/session-log'
import { randomBytes } from 'node:crypto'
import { sessionConversation } from '../../src/channels/conversation.ts'
import { fileDropChannel } from '../../src/channels/file-drop.ts'
import { httpChannel } from '../../src/channels/http.ts'
import { type ChannelEvent, startChannels } from '../../src/channels/runner.ts'
import { answering } from '../answering.ts'

export const token = 'a-token-of-some-length'

/** An agent with both channels, in this process. */
export type Living = { readonly log: SessionLog; readonly harness: Harness; readonly close: () => Promise<void> }

const after = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, Math.min(ms, 20))
    signal.addEventListener('abort', end)
  })

/** Opens the session of `folder` and starts its channels; each message is answered with its own text. */
export async function live(
  folder: string,
  parts: {
    readonly thinking?: () => Promise<unknown>
    readonly onListening: (port: number) => void
    readonly onEvent: (event: ChannelEvent) => void
  },
): Promise<Living> {
  const log = await openSession(`${folder}/sessions/main-1.jsonl`, { create: { cwd: 'workspace' } })
  const model = answering(async ({ messages }) => {
    await parts.thinking?.()
    const last = messages.findLast(({ role }) => role === 'user')?.content[0]
    return `re: ${last?.type === 'text' ? last.text.split('\n')[1] : ''}`
  })
  const harness = createHarness({ log, model, tools: [], system: '' })
  await harness.recover()
  const newId = createIdSource({ now: Date.now, random: randomBytes })
  const channels = startChannels({
    file: `${folder}/channels.db`,
    channels: [
      httpChannel({ port: 0, token, after, onListening: parts.onListening }),
      fileDropChannel({ root: folder, newId: () => newId('f_'), after, pollMs: 5 }),
    ],
    conversation: sessionConversation({ harness, log }, { after }),
    onEvent: parts.onEvent,
    ...{ newId: () => newId('m_'), now: Date.now, after },
  })
  const close = async (): Promise<void> => {
    await channels.close()
    await harness.close()
    await log.close()
  }
  return { log, harness, close }
}
