import type { SqlValue, Store } from '@reve/content-store'

/** One executed call. */
export type Event = {
  readonly seat: string
  /** `family.action`; a call that names neither is recorded under what it asked for. */
  readonly tool: string
  /** JSON of the logged arguments; `argumentsCut` says that it ends early and is no JSON any more. */
  readonly arguments: string
  readonly argumentsCut: boolean
  readonly ok: boolean
  readonly durationMs: number
  readonly bytesIn: number
  readonly bytesOut: number
  readonly error: string | null
  /** ISO 8601, UTC: when the call ended. */
  readonly at: string
}

export type Metrics = {
  readonly windowSeconds: number
  readonly calls: number
  readonly failed: number
  readonly byTool: readonly {
    readonly tool: string
    readonly calls: number
    readonly failed: number
    readonly meanMs: number
    readonly maxMs: number
  }[]
  readonly bySeat: readonly { readonly seat: string; readonly calls: number }[]
}

const migrations = [
  `CREATE TABLE event (
     id INTEGER PRIMARY KEY,
     seat TEXT NOT NULL,
     tool TEXT NOT NULL,
     arguments TEXT NOT NULL,
     arguments_cut INTEGER NOT NULL,
     ok INTEGER NOT NULL,
     duration_ms REAL NOT NULL,
     bytes_in INTEGER NOT NULL,
     bytes_out INTEGER NOT NULL,
     error TEXT,
     at TEXT NOT NULL
   );
   CREATE INDEX event_at ON event (at);`,
]

export interface Events {
  /** Writes a row inside of the transaction that is open, so that an effect and its event are one. */
  insert(event: Event): void
  /** Writes a row durably and resolves then; rows that come together share one commit. */
  record(event: Event): Promise<void>
  /** The newest `count` rows, newest first. */
  newest(count: number): readonly (Event & { readonly id: number })[]
  metrics(windowSeconds: number): Metrics
}

type Row = {
  readonly id: number
  readonly seat: string
  readonly tool: string
  readonly arguments: string
  readonly arguments_cut: number
  readonly ok: number
  readonly duration_ms: number
  readonly bytes_in: number
  readonly bytes_out: number
  readonly error: string | null
  readonly at: string
}

/** Events in `kc.db` of an open store. */
export function createEvents(store: Store, now: () => number): Events {
  store.registerSchema('events', migrations)
  let waiting: { readonly event: Event; readonly done: () => void; readonly failed: (error: unknown) => void }[] = []
  let scheduled = false

  const insert = (event: Event): void => {
    store.transaction((db) =>
      db
        .prepare(
          `INSERT INTO event (seat, tool, arguments, arguments_cut, ok, duration_ms, bytes_in, bytes_out, error, at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        )
        .run(
          event.seat,
          event.tool,
          event.arguments,
          event.argumentsCut ? 1 : 0,
          event.ok ? 1 : 0,
          event.durationMs,
          event.bytesIn,
          event.bytesOut,
          event.error,
          event.at,
        ),
    )
  }

  const flush = (): void => {
    scheduled = false
    const batch = waiting
    waiting = []
    if (batch.length === 0) return
    try {
      store.transaction(() => batch.forEach(({ event }) => insert(event)))
    } catch (error) {
      batch.forEach(({ failed }) => failed(error))
      return
    }
    batch.forEach(({ done }) => done())
  }

  const read = (sql: string, ...parameters: readonly SqlValue[]): readonly unknown[] =>
    store.transaction((db) => db.prepare(sql).all(...parameters))

  return {
    insert,
    record: (event) =>
      new Promise((done, failed) => {
        waiting.push({ event, done, failed })
        if (!scheduled) setImmediate(flush)
        scheduled = true
      }),
    newest: (count) =>
      (read('SELECT * FROM event ORDER BY id DESC LIMIT ?', count) as readonly Row[]).map((row) => ({
        id: row.id,
        seat: row.seat,
        tool: row.tool,
        arguments: row.arguments,
        argumentsCut: row.arguments_cut === 1,
        ok: row.ok === 1,
        durationMs: row.duration_ms,
        bytesIn: row.bytes_in,
        bytesOut: row.bytes_out,
        error: row.error,
        at: row.at,
      })),
    metrics: (windowSeconds) => {
      const since = new Date(now() - windowSeconds * 1000).toISOString()
      const byTool = read(
        `SELECT tool, count(*) AS calls, sum(1 - ok) AS failed, round(avg(duration_ms), 2) AS meanMs, round(max(duration_ms), 2) AS maxMs
         FROM event WHERE at >= ? GROUP BY tool ORDER BY calls DESC, tool`,
        since,
      ) as Metrics['byTool']
      const bySeat = read(
        'SELECT seat, count(*) AS calls FROM event WHERE at >= ? GROUP BY seat ORDER BY calls DESC, seat',
        since,
      ) as Metrics['bySeat']
      const sum = (field: 'calls' | 'failed'): number => byTool.reduce((total, row) => total + row[field], 0)
      return { windowSeconds, calls: sum('calls'), failed: sum('failed'), byTool, bySeat }
    },
  }
}
