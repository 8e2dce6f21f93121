import type { SqlDatabase, SqlStatement, SqlValue } from '@reve/content-store'
import Sqlite from 'better-sqlite3'
import { seatMigrations, seatNamespace, type SeatTables } from './seats.ts'

/**
 * The seats' tables of a computer's database and nothing else of it: no lock is taken and no folder swept, so that it works
 * beside the process that serves the computer. Undefined when the tables are not of this version or cannot be read: whoever
 * opens the whole store then brings them there, or learns what is wrong.
 */
export function openSeatTables(file: string): (SeatTables & { readonly close: () => void }) | undefined {
  let sqlite: Sqlite.Database | undefined
  try {
    sqlite = new Sqlite(file, { fileMustExist: true, timeout: 5000 })
    sqlite.pragma('synchronous = FULL')
    const row: unknown = sqlite.prepare('SELECT version FROM schema_version WHERE namespace = ?').get(seatNamespace)
    if (typeof row === 'object' && row !== null && 'version' in row && row.version === seatMigrations.length) {
      return tablesOf(sqlite)
    }
  } catch (error) {
    if (!(error instanceof Sqlite.SqliteError)) throw error
  }
  sqlite?.close()
  return undefined
}

function tablesOf(sqlite: Sqlite.Database): SeatTables & { readonly close: () => void } {
  const database: SqlDatabase = {
    prepare: <Row>(sql: string) => sqlite.prepare<SqlValue[]>(sql) as SqlStatement<Row>,
  }
  return {
    registerSchema: () => undefined,
    transaction: (fn) => sqlite.transaction(() => fn(database)).immediate(),
    close: () => void sqlite.close(),
  }
}
