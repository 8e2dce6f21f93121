import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Channel } from '../../src/channels/channel.ts'
import { openChannelStore } from '../../src/channels/store.ts'
import { onTestFinished } from 'vitest'

/** Resolves after `ms`, or at the abort. */
export const after = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
  })

let ids = 0
/** Ids whose order is that of time. */
export const newId = (): string => `m_${String(++ids).padStart(6, '0')}`

/** One channel over a store, without anything that answers. */
export function listening(
  channel: Channel,
  limits: { readonly waiting?: number; readonly characters?: number } = {},
  folder = mkdtempSync(join(tmpdir(), 'channel-')),
) {
  const store = openChannelStore(join(folder, 'channels.db'), { now: Date.now, newId, limits })
  const stop = new AbortController()
  const over = channel.start(store.inboxOf(channel.name), stop.signal)
  const close = async (): Promise<void> => {
    stop.abort()
    await over.catch(() => undefined)
    store.close()
  }
  onTestFinished(close)
  return { store, over, close, signal: stop.signal }
}
