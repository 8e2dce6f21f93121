import { lookup } from 'node:dns/promises'
import { connect as connectSocket } from 'node:net'
import type { Duplex } from 'node:stream'
import { codeOf } from '@reve/base'
import type { AllowList } from './allow-list.ts'

/** The addresses of a name, in the order in which to try them. Throws when there are none. */
export type Resolve = (name: string) => Promise<readonly string[]>

/** A connection to an address, with half close. Throws when it cannot be had; `signal` ends the attempt. */
export type Connect = (to: {
  readonly address: string
  readonly port: number
  readonly signal: AbortSignal
}) => Promise<Duplex>

/** A connection, or why there is none. */
export type Dialled =
  | { readonly ok: true; readonly socket: Duplex; readonly address: string }
  | {
      readonly ok: false
      readonly reason: 'unresolved' | 'private_address' | 'refused' | 'timeout'
      readonly code?: string
    }

/** Connects to listed names and addresses. */
export type Dialler = {
  /** Resolves, drops addresses that the name may not lead to, and takes the first one that answers. */
  toName(name: string, port: number): Promise<Dialled>
  toAddress(address: string, port: number): Promise<Dialled>
  /** Gives up what is under way. */
  close(): void
}

const KEEP_MS = 30_000
const MOST_KEPT = 1024
/** An attempt that has not answered gets company (RFC 8305). */
const NEXT_ATTEMPT_MS = 250
const MOST_ATTEMPTS = 8

/** The system's resolver. */
export const resolveName: Resolve = async (name) => (await lookup(name, { all: true })).map(({ address }) => address)

/** A TCP socket. */
export const connectTcp: Connect = ({ address, port, signal }) => {
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>()
  const socket = connectSocket({ host: address, port, allowHalfOpen: true, noDelay: true, keepAlive: true })
  const stop = (): void => {
    socket.destroy(new Error('given up'))
  }
  signal.addEventListener('abort', stop, { once: true })
  socket.once('error', reject)
  socket.once('connect', () => {
    signal.removeEventListener('abort', stop)
    // Whoever takes it over sees its close.
    socket.on('error', () => socket.destroy())
    resolve(socket)
  })
  return promise
}

/** A dialler over a resolver and a way to connect. Answers are kept for 30 s; an attempt takes at most `timeoutMs`. */
export function createDialler(parts: {
  readonly allow: AllowList
  readonly resolve: Resolve
  readonly connect: Connect
  readonly now: () => number
  readonly timeoutMs: number
}): Dialler {
  const kept = new Map<string, { readonly at: number; readonly addresses: Promise<readonly string[]> }>()
  const closed = new AbortController()

  const addressesOf = (name: string): Promise<readonly string[]> => {
    const time = parts.now()
    const known = kept.get(name)
    if (known !== undefined && time >= known.at && time - known.at < KEEP_MS) return known.addresses
    if (kept.size >= MOST_KEPT) kept.clear()
    const entry = { at: time, addresses: parts.resolve(name) }
    kept.set(name, entry)
    // A failure is not kept: the next attempt asks again.
    entry.addresses.catch(() => kept.get(name) === entry && kept.delete(name))
    return entry.addresses
  }

  /** The first of several addresses that answers; the later ones start when the earlier ones fail or are slow. */
  const race = async (addresses: readonly string[], port: number, over: AbortSignal): Promise<Dialled> => {
    const { promise, resolve } = Promise.withResolvers<Dialled>()
    const won = new AbortController()
    const signal = AbortSignal.any([over, won.signal])
    let next = 0
    let running = 0
    let code: string | undefined
    let timer: NodeJS.Timeout | undefined
    const settle = (dialled: Dialled): void => {
      clearTimeout(timer)
      resolve(dialled)
    }
    const start = (): void => {
      clearTimeout(timer)
      const address = addresses[next]
      if (signal.aborted || address === undefined) {
        if (running === 0)
          settle({ ok: false, reason: over.aborted ? 'timeout' : 'refused', ...(code === undefined ? {} : { code }) })
        return
      }
      next += 1
      running += 1
      timer = setTimeout(start, NEXT_ATTEMPT_MS)
      parts.connect({ address, port, signal }).then(
        (socket) => {
          if (signal.aborted) {
            socket.destroy()
            return
          }
          settle({ ok: true, socket, address })
          won.abort()
        },
        (error: unknown) => {
          running -= 1
          code = codeOf(error) ?? code
          start()
        },
      )
    }
    const timeUp = (): void => settle({ ok: false, reason: 'timeout' })
    over.addEventListener('abort', timeUp, { once: true })
    if (over.aborted) timeUp()
    else start()
    try {
      return await promise
    } finally {
      over.removeEventListener('abort', timeUp)
    }
  }

  const timed = async (work: (over: AbortSignal) => Promise<Dialled>): Promise<Dialled> => {
    const time = new AbortController()
    const timer = setTimeout(() => time.abort(), parts.timeoutMs)
    try {
      return await work(AbortSignal.any([time.signal, closed.signal]))
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    toName: (name, port) =>
      timed(async (over) => {
        let addresses: readonly string[] | undefined
        try {
          addresses = await Promise.race([addressesOf(name), aborted(over)])
        } catch (error) {
          return { ok: false, reason: 'unresolved', ...codeFor(error) }
        }
        if (addresses === undefined) return { ok: false, reason: 'timeout' }
        if (addresses.length === 0) return { ok: false, reason: 'unresolved' }
        const open = addresses.filter((address) => parts.allow.mayLeadTo(address, port)).slice(0, MOST_ATTEMPTS)
        return open.length === 0 ? { ok: false, reason: 'private_address' } : race(open, port, over)
      }),
    toAddress: (address, port) => timed((over) => race([address], port, over)),
    close: () => closed.abort(),
  }
}

const codeFor = (error: unknown): { readonly code?: string } => {
  const code = codeOf(error)
  return code === undefined ? {} : { code }
}

const aborted = (signal: AbortSignal): Promise<undefined> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(undefined)
    else signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
