import { messageOf } from '@reve/base'
import type { HarnessEvent, HarnessEventBody, Listener } from './events.ts'

/** Hands events to listeners, in order, at once. */
export type Emitter = {
  emit(lane: string, runId: string, body: HarnessEventBody): void
  subscribe(listener: Listener): () => void
}

/** Makes an emitter. A listener can neither stop a run nor see events out of order, even when it causes new ones. */
export function createEmitter(clean: (text: string) => string): Emitter {
  const listeners = new Set<Listener>()
  const waiting: { readonly event: HarnessEvent; readonly except?: Listener }[] = []
  let delivering = false

  function put(event: HarnessEvent, except?: Listener): void {
    waiting.push({ event, ...(except && { except }) })
    if (delivering) return
    delivering = true
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      for (const listener of [...listeners]) if (listener !== next.except) deliver(listener, next.event)
    }
    delivering = false
  }

  function deliver(listener: Listener, event: HarnessEvent): void {
    const report = (error: unknown): void => {
      // A listener that fails at the news of a failure is not reported: that could go on for ever.
      if (event.type === 'listener_failed') return
      const { v, lane, runId } = event
      put({ v, lane, runId, type: 'listener_failed', message: clean(messageOf(error)) }, listener)
    }
    try {
      const result: unknown = listener(event)
      if (result instanceof Promise) result.catch(report)
    } catch (error) {
      report(error)
    }
  }

  return {
    emit: (lane, runId, body) => put({ v: 1, lane, runId, ...body }),
    subscribe(listener) {
      const own: Listener = (event) => listener(event)
      listeners.add(own)
      return () => void listeners.delete(own)
    },
  }
}
