import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import { bounded } from '../text.ts'

export const computer: Family = {
  name: 'computer',
  purpose: 'What happened here: one event for each call, by any seat.',
  fields: {
    window_s: { type: 'number', description: 'Seconds to look back (default 3600)' },
    n: { type: 'integer', description: 'How many of the newest events (default 20)' },
  },
  hints: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  actions: {
    metrics: action({
      signature: 'computer.metrics(window_s?)',
      fields: { window_s: v.optional(field.seconds(1e9), 3600) },
      logged: ['window_s'],
      effect: 'read',
      run: ({ events }, { window_s }) => {
        const metrics = events.metrics(window_s)
        return [
          `${metrics.calls} calls in the last ${metrics.windowSeconds} s, ${metrics.failed} failed`,
          ...metrics.byTool.map(
            ({ tool, calls, failed, meanMs, maxMs }) =>
              `${tool}: ${calls} calls, ${failed} failed, mean ${meanMs} ms, max ${maxMs} ms`,
          ),
          ...metrics.bySeat.map((row) => `seat ${row.seat}: ${row.calls} calls`),
        ].join('\n')
      },
    }),
    events: action({
      signature: 'computer.events(n?)',
      fields: { n: v.optional(field.count(1000), 20) },
      logged: ['n'],
      effect: 'read',
      run: ({ events }, { n }) => {
        const rows = events.newest(n).map((event) => {
          const outcome = event.ok ? 'ok' : `failed: ${event.error ?? 'no reason'}`
          const args = event.argumentsCut ? `${event.arguments}… (cut)` : event.arguments
          return `${event.at} ${event.seat} ${event.tool} ${args} ${event.durationMs.toFixed(1)} ms, ${event.bytesIn} B in, ${event.bytesOut} B out, ${outcome}`
        })
        return bounded(rows.join('\n') || '(no events)', 'Ask for fewer with n.')
      },
    }),
  },
}
