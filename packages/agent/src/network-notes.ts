import { type EgressEvent, egressText } from '@reve/sandbox-microvm'

/** What the edge of the VM's network did not let through, for the results of the commands that met it. */
export type NetworkNotes = {
  /** Takes an event of the edge. */
  add(event: EgressEvent): void
  /** A point in time, for {@link NetworkNotes.after}. */
  mark(): number
  /**
   * Lines on what went wrong since the mark, and shortly before it where `output` names the host: the edge tells of the same
   * refusal only once in a while. Each line once, a few at most.
   */
  after(mark: number, output: string): readonly string[]
}

/** Kept of what happened; enough for the commands that run at the moment. */
const kept = 200
const shown = 5
const recentMs = 15_000

/** Makes an empty list of notes. */
export function createNetworkNotes(now: () => number = Date.now): NetworkNotes {
  let count = 0
  let events: readonly { readonly at: number; readonly time: number; readonly event: EgressEvent }[] = []
  return {
    add(event) {
      if (!isTrouble(event)) return
      events = [...events.slice(1 - kept), { at: ++count, time: now(), event }]
    },
    mark: () => count,
    after(mark, output) {
      const met = events.filter(
        ({ at, time, event }) =>
          at > mark || (now() - time < recentMs && 'host' in event && output.includes(event.host)),
      )
      const lines = [...new Set(met.map(({ event }) => egressText(event)))]
      const more = lines.length - shown
      return [...lines.slice(0, shown), ...(more > 0 ? [`and ${more} more`] : [])]
    },
  }
}

/** What a command that failed wants to know. */
function isTrouble({ type }: EgressEvent): boolean {
  switch (type) {
    case 'denied':
    case 'unreachable':
    case 'tls_failed':
    case 'secret_missing':
    case 'secret_unusable':
    case 'secret_withheld':
      return true
    case 'connected':
    case 'closed':
    case 'secret_used':
    case 'suppressed':
      return false
    default:
      return type satisfies never
  }
}

/** A tool's text with what the network did not let through at its end. */
export function withNetworkNotes(text: string, notes: readonly string[]): string {
  return notes.length === 0 ? text : `${text}\n${notes.map((note) => `(network: ${note})`).join('\n')}`
}
