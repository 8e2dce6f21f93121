import { createHash, timingSafeEqual } from 'node:crypto'
import type { SqlValue, Store } from '@reve/content-store'
import { ComputerError } from './errors.ts'

/** An identity that acts. Its token is nowhere but with its holder. */
export type Seat = {
  readonly name: string
  readonly identity: string
  readonly systemPrompt: string
  readonly loopState: string
  /** ISO 8601, UTC. */
  readonly createdAt: string
}

export type SeatTexts = { readonly identity?: string; readonly systemPrompt?: string; readonly loopState?: string }

/** A token is 256 random bits; one that a host hands in must not be guessable either. */
const shortestToken = 32
const seatName = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/

/** Owner of the seats' tables in `kc.db`, and each step of their versions. */
export const seatNamespace = 'seats'
export const seatMigrations = [
  `CREATE TABLE seat (
     name TEXT PRIMARY KEY,
     identity TEXT NOT NULL DEFAULT '',
     system_prompt TEXT NOT NULL DEFAULT '',
     loop_state TEXT NOT NULL DEFAULT '',
     token_hash BLOB NOT NULL UNIQUE,
     created_at TEXT NOT NULL
   )`,
]

export interface Seats {
  /** Makes a seat and its token, which is given here once and kept as a hash alone. */
  create(name: string): { readonly seat: Seat; readonly token: string }
  /** Gives a seat a new token; the old one ends with this call. */
  rekey(name: string): { readonly seat: Seat; readonly token: string }
  /** Makes the seat with this very token, or re-keys it to that: how a host hands its first seat in. */
  ensure(name: string, token: string): Seat
  remove(name: string): void
  list(): readonly Seat[]
  /** The seat whose token this is. Reads the database at each call, so that a seat made by another process works at once. */
  authenticate(token: string): Seat | undefined
  update(name: string, texts: SeatTexts): Seat
}

type Row = {
  readonly name: string
  readonly identity: string
  readonly system_prompt: string
  readonly loop_state: string
  readonly token_hash: Uint8Array
  readonly created_at: string
}

/** What seats need of the store: their own tables, and transactions on them. */
export type SeatTables = Pick<Store, 'registerSchema' | 'transaction'>

/** Seats in `kc.db`. Each verb is one transaction, so that processes beside each other never see half of one. */
export function createSeats(
  store: SeatTables,
  surroundings: { readonly now: () => number; readonly random: (bytes: number) => Uint8Array },
): Seats {
  store.registerSchema(seatNamespace, seatMigrations)
  const rows = (sql: string, ...parameters: readonly SqlValue[]): readonly Row[] =>
    store.transaction((db) => db.prepare(sql).all(...parameters)) as readonly Row[]
  const newToken = (): string => `kc_${Buffer.from(surroundings.random(32)).toString('base64url')}`

  const get = (name: string): Seat => {
    const [row] = rows('SELECT * FROM seat WHERE name = ?', name)
    if (row === undefined)
      throw new ComputerError('no_such_seat', `there is no seat "${name}"; kc seat list shows them`)
    return seatOf(row)
  }
  /** A token that two seats have could not tell who calls. */
  const refuseTaken = (name: string, token: string): void => {
    const [row] = rows('SELECT * FROM seat WHERE token_hash = ?', hashOf(token))
    if (row === undefined || row.name === name) return
    throw new ComputerError(
      'bad_seat',
      `the token for the seat "${name}" is that of the seat "${row.name}"; give another one, or end that seat with kc seat remove ${row.name}`,
    )
  }
  const insert = (name: string, token: string): Seat => {
    store.transaction((db) =>
      db
        .prepare('INSERT INTO seat (name, token_hash, created_at) VALUES (?, ?, ?)')
        .run(name, hashOf(token), new Date(surroundings.now()).toISOString()),
    )
    return get(name)
  }
  const setToken = (name: string, token: string): Seat => {
    store.transaction((db) => db.prepare('UPDATE seat SET token_hash = ? WHERE name = ?').run(hashOf(token), name))
    return get(name)
  }
  const exists = (name: string): boolean => rows('SELECT * FROM seat WHERE name = ?', name).length > 0

  return {
    create: (name) => {
      checkName(name)
      const token = newToken()
      return store.transaction(() => {
        if (exists(name))
          throw new ComputerError(
            'seat_exists',
            `the seat "${name}" exists; kc seat rekey ${name} gives it a new token`,
          )
        return { seat: insert(name, token), token }
      })
    },
    rekey: (name) => {
      const token = newToken()
      return store.transaction(() => {
        get(name)
        return { seat: setToken(name, token), token }
      })
    },
    ensure: (name, token) => {
      checkName(name)
      if (token.length < shortestToken || !/^[\x21-\x7e]+$/.test(token)) {
        throw new ComputerError(
          'bad_seat',
          `the token for the seat "${name}" is too weak: it needs at least ${shortestToken} visible ASCII characters`,
        )
      }
      return store.transaction(() => {
        refuseTaken(name, token)
        return exists(name) ? setToken(name, token) : insert(name, token)
      })
    },
    remove: (name) =>
      store.transaction((db) => {
        get(name)
        db.prepare('DELETE FROM seat WHERE name = ?').run(name)
      }),
    list: () => rows('SELECT * FROM seat ORDER BY name').map(seatOf),
    authenticate: (token) => {
      const hash = hashOf(token)
      // The index finds the row by the hash of what was sent; comparing in constant time is the belt to these braces.
      const [row] = rows('SELECT * FROM seat WHERE token_hash = ?', hash)
      return row !== undefined && timingSafeEqual(row.token_hash, hash) ? seatOf(row) : undefined
    },
    update: (name, texts) =>
      store.transaction((db) => {
        const seat = get(name)
        db.prepare('UPDATE seat SET identity = ?, system_prompt = ?, loop_state = ? WHERE name = ?').run(
          texts.identity ?? seat.identity,
          texts.systemPrompt ?? seat.systemPrompt,
          texts.loopState ?? seat.loopState,
          name,
        )
        return get(name)
      }),
  }
}

const hashOf = (token: string): Buffer => createHash('sha256').update(token).digest()

const seatOf = (row: Row): Seat => ({
  name: row.name,
  identity: row.identity,
  systemPrompt: row.system_prompt,
  loopState: row.loop_state,
  createdAt: row.created_at,
})

function checkName(name: string): void {
  if (seatName.test(name)) return
  throw new ComputerError(
    'bad_seat',
    `${JSON.stringify(name)} is not a seat's name: it takes 1 to 64 letters, digits, ".", "_" or "-", a letter or digit first`,
  )
}
