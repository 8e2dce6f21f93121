import { chmodSync, closeSync, existsSync, openSync, readFileSync, readSync, realpathSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '@reve/base'
import Sqlite from 'better-sqlite3'
import { makeFolder } from './durable.ts'
import { hasCode, StoreError } from './errors.ts'

/** A value that SQLite binds or gives. */
export type SqlValue = string | number | bigint | Uint8Array | null

/** A prepared statement; parameters are positional. */
export type SqlStatement<Row> = {
  run(...parameters: SqlValue[]): { readonly changes: number; readonly lastInsertRowid: number | bigint }
  get(...parameters: SqlValue[]): Row | undefined
  all(...parameters: SqlValue[]): Row[]
  iterate(...parameters: SqlValue[]): IterableIterator<Row>
}

/** What an owner of tables in `kc.db` gets: statements, prepared once per text. `Row` is the owner's word for what it selects. */
export type SqlDatabase = { prepare<Row = unknown>(sql: string): SqlStatement<Row> }

/** Version of the store's own tables and files; a newer one is refused untouched. */
export const formatVersion = 1

/** "kcdb": tells our file from any other SQLite file. */
const applicationId = 0x6b636462

const databaseName = 'kc.db'

const ownSchema = `
  CREATE TABLE object (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    kind INTEGER NOT NULL,
    size INTEGER NOT NULL,
    data BLOB,
    seg INTEGER,
    off INTEGER
  );
  CREATE TABLE ref (name TEXT PRIMARY KEY, tree BLOB NOT NULL, rev INTEGER NOT NULL);
  CREATE TABLE move (
    ref TEXT NOT NULL,
    rev INTEGER NOT NULL,
    actor TEXT NOT NULL,
    at TEXT NOT NULL,
    from_tree BLOB,
    to_tree BLOB,
    note TEXT,
    PRIMARY KEY (ref, rev)
  );
  CREATE TABLE base (a TEXT NOT NULL, b TEXT NOT NULL, tree BLOB NOT NULL, PRIMARY KEY (a, b));
  CREATE TABLE snapshot (name TEXT PRIMARY KEY, actor TEXT NOT NULL, at TEXT NOT NULL, note TEXT);
  CREATE TABLE snapshot_ref (
    snapshot TEXT NOT NULL,
    ref TEXT NOT NULL,
    tree BLOB NOT NULL,
    rev INTEGER NOT NULL,
    PRIMARY KEY (snapshot, ref)
  );
  CREATE TABLE schema_version (namespace TEXT PRIMARY KEY, version INTEGER NOT NULL);
`

/** `kc.db`, opened by its one owner. */
export class Database implements SqlDatabase {
  readonly file: string
  #sqlite: Sqlite.Database
  #statements = new Map<string, Sqlite.Statement<SqlValue[]>>()
  #depth = 0

  private constructor(file: string, sqlite: Sqlite.Database) {
    this.file = file
    this.#sqlite = sqlite
  }

  /** Opens, or with `create` makes, the database of a store. The folder exists. */
  static open(root: string, create: boolean): Database {
    const file = join(root, databaseName)
    if (existsSync(file)) refuseForeign(file)
    else if (!create)
      throw new StoreError('not_a_store', `${root} holds no store: ${databaseName} is missing`, { path: root })
    else closeSync(openSync(file, 'wx', 0o600))
    let sqlite: Sqlite.Database
    try {
      sqlite = new Sqlite(file, { timeout: 5000 })
    } catch (error) {
      throw sqliteError(file, error)
    }
    try {
      // The pages of a crash may still be in the WAL, so the header alone does not tell the version.
      refuseVersion(file, Number(sqlite.pragma('user_version', { simple: true })))
      sqlite.pragma('page_size = 8192')
      sqlite.pragma('journal_mode = WAL')
      // better-sqlite3 is built with NORMAL under WAL: a commit could vanish in a power cut.
      sqlite.pragma('synchronous = FULL')
      sqlite.pragma('journal_size_limit = 67108864')
      sqlite.pragma('trusted_schema = OFF')
      const database = new Database(file, sqlite)
      if (Number(sqlite.pragma('user_version', { simple: true })) === 0) {
        database.transaction(() => {
          sqlite.exec(ownSchema)
          sqlite.pragma(`application_id = ${applicationId}`)
          sqlite.pragma(`user_version = ${formatVersion}`)
        })
      }
      return database
    } catch (error) {
      sqlite.close()
      throw error instanceof StoreError ? error : sqliteError(file, error)
    }
  }

  prepare<Row = unknown>(sql: string): SqlStatement<Row> {
    let statement = this.#statements.get(sql)
    if (statement === undefined) {
      if (!this.#sqlite.open) throw new StoreError('closed', `the store of ${this.file} is closed`, { path: this.file })
      statement = this.#sqlite.prepare<SqlValue[]>(sql)
      this.#statements.set(sql, statement)
    }
    return statement as SqlStatement<Row>
  }

  /**
   * Runs `fn` in one transaction (BEGIN IMMEDIATE, synchronous=FULL). A call inside another joins it: its effects are durable
   * with the outer one, and are undone alone when `fn` throws.
   */
  transaction<T>(fn: () => T): T {
    const depth = this.#depth
    if (!this.#sqlite.open) throw new StoreError('closed', `the store of ${this.file} is closed`, { path: this.file })
    try {
      this.#sqlite.exec(depth === 0 ? 'BEGIN IMMEDIATE' : `SAVEPOINT s${depth}`)
    } catch (error) {
      throw sqliteError(this.file, error)
    }
    this.#depth += 1
    try {
      const result = fn()
      if (result instanceof Promise) {
        throw new StoreError(
          'bad_argument',
          'a transaction cannot wait: its function must return a value, not a promise',
        )
      }
      this.#sqlite.exec(depth === 0 ? 'COMMIT' : `RELEASE s${depth}`)
      return result
    } catch (error) {
      // A full disk makes SQLite roll back by itself.
      if (this.#sqlite.inTransaction)
        this.#sqlite.exec(depth === 0 ? 'ROLLBACK' : `ROLLBACK TO s${depth}; RELEASE s${depth}`)
      throw depth === 0 ? sqliteError(this.file, error) : error
    } finally {
      this.#depth = depth
    }
  }

  /** Runs `fn`, which cannot fail half-way, in the transaction that is open, or in one of its own. */
  join<T>(fn: () => T): T {
    return this.#depth > 0 ? fn() : this.transaction(fn)
  }

  /** Applies an owner's migrations that this file has not seen; a file that already holds older tables is copied first. */
  migrate(namespace: string, migrations: readonly string[]): void {
    const version =
      this.prepare<{ version: number }>('SELECT version FROM schema_version WHERE namespace = ?').get(namespace)
        ?.version ?? 0
    if (version > migrations.length) {
      throw new StoreError(
        'newer_format',
        `${this.file}: the tables of ${namespace} have version ${version}, this program knows ${migrations.length}`,
        {
          path: this.file,
          hint: 'use the newer program; nothing was changed',
        },
      )
    }
    if (version === migrations.length) return
    if (this.#depth > 0)
      throw new StoreError('bad_argument', `the tables of ${namespace} cannot be migrated inside a transaction`)
    if (version > 0) this.backup(`${this.file}.before-${namespace}-${migrations.length}`)
    this.transaction(() => {
      for (const sql of migrations.slice(version)) this.#sqlite.exec(sql)
      this.prepare(
        'INSERT INTO schema_version VALUES (?, ?) ON CONFLICT (namespace) DO UPDATE SET version = excluded.version',
      ).run(namespace, migrations.length)
    })
  }

  /** Writes a copy of the database as it is now; a copy of that name from an earlier try is replaced. */
  backup(file: string): void {
    // VACUUM INTO takes an existing empty file, so the copy never has wider permissions than ours.
    closeSync(openSync(file, 'w', 0o600))
    this.prepare('VACUUM INTO ?').run(file)
  }

  /** What SQLite finds wrong with the file; empty when all is well. */
  integrityFaults(): readonly string[] {
    return this.prepare<{ integrity_check: string }>('PRAGMA integrity_check')
      .all()
      .map((row) => row.integrity_check)
      .filter((text) => text !== 'ok')
  }

  close(): void {
    if (!this.#sqlite.open) return
    this.#statements.clear()
    this.#sqlite.pragma('wal_checkpoint(TRUNCATE)')
    this.#sqlite.close()
  }
}

/** Reads the file's header, without opening it as a database: a newer or foreign file must stay as it is. */
function refuseForeign(file: string): void {
  const header = Buffer.alloc(100)
  const fd = openSync(file, 'r')
  try {
    const read = readSync(fd, header, 0, 100, 0)
    // Cut short while it was made: nothing was ever in it.
    if (read === 0) return
  } finally {
    closeSync(fd)
  }
  if (header.subarray(0, 16).toString('latin1') !== 'SQLite format 3\0') {
    throw new StoreError('corrupt', `${file} is no SQLite database`, { path: file, hint: 'restore it from a backup' })
  }
  const id = header.readUInt32BE(68)
  if (id !== applicationId && id !== 0)
    throw new StoreError('not_a_store', `${file} belongs to another program`, { path: file })
  refuseVersion(file, header.readUInt32BE(60))
}

function refuseVersion(file: string, version: number): void {
  if (version <= formatVersion) return
  throw new StoreError('newer_format', `${file} has format ${version}, this program knows ${formatVersion}`, {
    path: file,
    hint: 'use the newer program; nothing was changed',
  })
}

/** SQLite's failures as ours; anything else passes. */
export function sqliteError(file: string, error: unknown): unknown {
  if (
    !(error instanceof Error) ||
    !('code' in error) ||
    typeof error.code !== 'string' ||
    !error.code.startsWith('SQLITE_')
  )
    return error
  const code = error.code
  const known =
    code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB'
      ? 'corrupt'
      : /^SQLITE_(BUSY|LOCKED)/.test(code)
        ? 'locked'
        : 'io'
  // A wrong statement is a defect, not a failure of the disk.
  if (known === 'io' && !/^SQLITE_(IOERR|FULL|CANTOPEN|READONLY|NOMEM|PERM|TOOBIG)/.test(code)) return error
  return new StoreError(known, `${file}: ${code === 'SQLITE_FULL' ? 'the disk is full' : messageOf(error)}`, {
    cause: error,
    path: file,
  })
}

/** File systems on which SQLite's WAL (shared memory) or locks do not hold what they promise. */
const unsafeFilesystems = new Set([
  'nfs',
  'nfs4',
  '9p',
  'virtiofs',
  'cifs',
  'smb3',
  'smbfs',
  'fuse.sshfs',
  'afs',
  'ceph',
  'prl_fs',
  'vboxsf',
])

/** Refuses a root on a network or shared file system, where it can be known (Linux). */
export function refuseUnsafeFilesystem(root: string): void {
  const mounts = readMounts()
  if (mounts === undefined) return
  const type = filesystemOf(mounts, realpathSync(root))
  if (!unsafeFilesystems.has(type)) return
  throw new StoreError(
    'unsupported_filesystem',
    `${root} is on ${type}, where a database can be damaged by its own log`,
    {
      path: root,
      hint: 'choose a folder on a local disk, or pass allowNetworkFilesystem to take the risk',
    },
  )
}

/** The type of the file system that holds a real path, from the text of /proc/self/mountinfo. */
export function filesystemOf(mounts: string, path: string): string {
  let best = { point: '', type: '' }
  for (const line of mounts.split('\n')) {
    const [left, right] = line.split(' - ')
    const point = left
      ?.split(' ')[4]
      ?.replace(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
    const type = right?.split(' ')[0]
    if (point === undefined || type === undefined) continue
    const holds = path === point || path.startsWith(point === '/' ? '/' : `${point}/`)
    // A later mount over the same point hides the earlier one.
    if (holds && point.length >= best.point.length) best = { point, type }
  }
  return best.type
}

function readMounts(): string | undefined {
  try {
    return readFileSync('/proc/self/mountinfo', 'utf8')
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'EACCES')) return undefined
    throw error
  }
}

/** Makes the store's folder, private to its owner. */
export function makeRoot(root: string): void {
  makeFolder(root)
  // A folder that was there already, or a umask of its own.
  if ((statSync(root).mode & 0o777) !== 0o700) chmodSync(root, 0o700)
}
