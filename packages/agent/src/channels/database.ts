import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import { codeOf, messageOf } from '@reve/base'
import Sqlite from 'better-sqlite3'
import { ChannelError } from './errors.ts'

const VERSION = 1
/** "rvch": tells our file from any other SQLite file. */
const APPLICATION_ID = 0x72766368
/** How long a transaction of another process is waited for. */
const BUSY_MS = 5000

const schema = `
  CREATE TABLE message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    key TEXT,
    sender TEXT,
    text TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'taken', 'answered', 'replied')),
    target TEXT,
    ok INTEGER,
    answer TEXT,
    UNIQUE (channel, key)
  );
  CREATE INDEX message_open ON message (state, seq) WHERE state <> 'replied';
  CREATE TABLE value (channel TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (channel, key)) WITHOUT ROWID;
`

/** The channels' file, opened: statements and transactions, each durable once it returns. */
export type ChannelDatabase = {
  readonly prepare: <Row = unknown>(
    sql: string,
  ) => {
    readonly run: (...values: readonly SqlValue[]) => {
      readonly changes: number
      readonly lastInsertRowid: number | bigint
    }
    readonly get: (...values: readonly SqlValue[]) => Row | undefined
    readonly all: (...values: readonly SqlValue[]) => readonly Row[]
  }
  /** All of it happens, or nothing; inside of another one it belongs to that. */
  readonly transaction: <T>(work: () => T) => T
  readonly close: () => void
}

type SqlValue = string | number | null

/**
 * Opens the file, or makes it (0600).
 *
 * @throws ChannelError `foreign_file`, `io`.
 */
export function openDatabase(file: string): ChannelDatabase {
  let sqlite: Sqlite.Database
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
    create(file)
    sqlite = new Sqlite(file, { timeout: BUSY_MS })
  } catch (cause) {
    throw new ChannelError('io', `${file} cannot be opened: ${messageOf(cause)}`, { cause })
  }
  try {
    prepareFile(file, sqlite)
  } catch (cause) {
    sqlite.close()
    if (cause instanceof ChannelError) throw cause
    const code = codeOf(cause) === 'SQLITE_NOTADB' ? 'foreign_file' : 'io'
    throw new ChannelError(code, `${file} cannot be used: ${messageOf(cause)}`, { cause })
  }
  const statements = new Map<string, Sqlite.Statement<SqlValue[]>>()
  const prepare = <Row>(sql: string) => {
    const found = statements.get(sql) ?? sqlite.prepare<SqlValue[]>(sql)
    statements.set(sql, found)
    return {
      run: (...values: readonly SqlValue[]) => found.run(...values),
      // Rows have the columns that the statement names: its writer knows them.
      get: (...values: readonly SqlValue[]) => found.get(...values) as Row | undefined,
      all: (...values: readonly SqlValue[]) => found.all(...values) as readonly Row[],
    }
  }
  return {
    prepare,
    transaction: (work) => {
      try {
        return sqlite.transaction(work).immediate()
      } catch (cause) {
        if (codeOf(cause)?.startsWith('SQLITE_') !== true) throw cause
        throw new ChannelError('io', `${file} cannot be written: ${messageOf(cause)}`, { cause })
      }
    },
    close: () => {
      if (sqlite.open) sqlite.close()
    },
  }
}

function prepareFile(file: string, sqlite: Sqlite.Database): void {
  const number = (pragma: string): number => Number(sqlite.pragma(pragma, { simple: true }))
  const refuse = (): void => {
    const version = number('user_version')
    const id = number('application_id')
    if (id !== APPLICATION_ID && (id !== 0 || version !== 0))
      throw new ChannelError('foreign_file', `${file} belongs to another program; it was left as it is`)
    if (version > VERSION)
      throw new ChannelError(
        'foreign_file',
        `${file} is of version ${version}, this program knows ${VERSION}; it was left as it is. Use the newer program`,
      )
  }
  refuse()
  sqlite.pragma('journal_mode = WAL')
  // A commit survives a loss of power, not only the process.
  sqlite.pragma('synchronous = FULL')
  sqlite.pragma('trusted_schema = OFF')
  sqlite
    .transaction(() => {
      refuse()
      if (number('user_version') > 0) return
      sqlite.exec(schema)
      sqlite.pragma(`application_id = ${APPLICATION_ID}`)
      sqlite.pragma(`user_version = ${VERSION}`)
    })
    .immediate()
}

/** SQLite would make it readable for everybody. */
function create(file: string): void {
  try {
    closeSync(openSync(file, 'wx', 0o600))
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
  }
}
