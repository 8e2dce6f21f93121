import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import { MAX_DOCUMENT_BYTES } from './oci.ts'
import { printRegistryReference, type RegistryReference } from './reference.ts'

/** What a registry is reached with. */
export type RegistryOptions = {
  /** Default: Node's own; another one brings a proxy or an authority of its own. */
  readonly fetch?: typeof globalThis.fetch
  /** Name and password for a registry, if there are any. */
  readonly credentials?: (registry: string) => { readonly username: string; readonly password: string } | undefined
  readonly signal?: AbortSignal
  /** Milliseconds before the first new try, doubled for each more; default 500. */
  readonly retryMs?: number
  /** Milliseconds without a byte after which an answer is given up; default 30,000. */
  readonly stallMs?: number
}

/** The registry does not serve now: no name, no connection, a time-out, or too many requests. */
export class UnavailableError extends MicroVmError {
  /** The same without what to do about it. */
  readonly reason: string
  constructor(reason: string, advice: string, cause: unknown) {
    super('image_failed', `${reason}; ${advice}`, { cause })
    this.reason = reason
  }
}

const TRIES = 5
/** A registry that was never reached will hardly be in a moment. */
const FIRST_TRIES = 3
const RETRY_MS = 500
const MAX_WAIT_MS = 30_000
const STALL_MS = 30_000
const REDIRECTS = 5
const ACCEPT = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ')

const isLoopback = (host: string): boolean => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/.test(host)

/** Reads one repository of a registry: manifests and blobs, over HTTPS (plain HTTP on this very machine). */
export class Registry {
  readonly #reference: RegistryReference
  readonly #options: RegistryOptions
  readonly #base: URL
  #authorization: string | undefined
  #reached = false

  constructor(reference: RegistryReference, options: RegistryOptions) {
    this.#reference = reference
    this.#options = options
    const { registry, repository } = reference
    // The name that everybody writes is not the host that answers.
    const host = registry === 'docker.io' ? 'registry-1.docker.io' : registry
    this.#base = new URL(`${isLoopback(host) ? 'http' : 'https'}://${host}/v2/${repository}/`)
  }

  /** A manifest by tag or digest; the caller checks what it is. */
  async manifest(version: string): Promise<Uint8Array> {
    const what = printRegistryReference({ ...this.#reference, version })
    return this.#retried(what, async () => {
      const answer = await this.#get(new URL(`manifests/${version}`, this.#base), { Accept: ACCEPT }, what)
      const parts: Uint8Array[] = []
      let length = 0
      for await (const part of this.#body(answer)) {
        length += part.length
        if (length > MAX_DOCUMENT_BYTES)
          throw new Final(`${what} has a manifest of more than ${MAX_DOCUMENT_BYTES} bytes`)
        parts.push(part)
      }
      return Buffer.concat(parts)
    })
  }

  /**
   * A blob from byte `from` on, in pieces; `write` is told with each where it starts, which is 0 again when the registry
   * does not go on in the middle. A broken answer goes on where it broke. The caller checks what it got.
   */
  async blob(
    { digest, size }: { readonly digest: string; readonly size: number },
    from: number,
    write: (bytes: Uint8Array, at: number) => Promise<void>,
  ): Promise<void> {
    const what = `${this.#reference.registry}/${this.#reference.repository} ${digest.slice(0, 19)}`
    let at = from
    await this.#retried(
      what,
      async () => {
        const range: Record<string, string> = at === 0 ? {} : { Range: `bytes=${at}-` }
        // What is counted and checked are the bytes as they are stored.
        range['Accept-Encoding'] = 'identity'
        const answer = await this.#get(new URL(`blobs/${digest}`, this.#base), range, what)
        const start = /^bytes (\d+)-/.exec(answer.headers.get('content-range') ?? '')?.[1]
        if (answer.status !== 206 || Number(start) !== at) at = 0
        for await (const part of this.#body(answer)) {
          if (at + part.length > size) throw new Final(`${what} is larger than the ${size} bytes that its image names`)
          await write(part, at)
          at += part.length
        }
        if (at < size) throw new Error(`the answer ended after ${at} of ${size} bytes`)
      },
      () => at,
    )
  }

  /** Tries again what may work another time. Whoever gets further each time has all the tries again. */
  async #retried<T>(what: string, request: () => Promise<T>, progress: () => number = () => 0): Promise<T> {
    const { signal, retryMs = RETRY_MS } = this.#options
    let reached = progress()
    for (let attempt = 1; ; attempt++) {
      try {
        return await request()
      } catch (error) {
        if (signal?.aborted === true) throw new MicroVmError('aborted', 'the start was cancelled')
        if (error instanceof Final) throw new MicroVmError('image_failed', error.message)
        if (error instanceof MicroVmError || isDiskError(error)) throw error
        if (progress() > reached) attempt = 1
        reached = progress()
        if (attempt >= (this.#reached ? TRIES : FIRST_TRIES)) throw this.#gaveUp(what, error)
        const asked = error instanceof Again ? error.afterMs : undefined
        const wait = Math.min(asked ?? retryMs * 2 ** (attempt - 1), MAX_WAIT_MS)
        try {
          await sleep(wait, undefined, signal === undefined ? {} : { signal })
        } catch {
          throw new MicroVmError('aborted', 'the start was cancelled')
        }
      }
    }
  }

  #gaveUp(what: string, error: unknown): MicroVmError {
    const { registry } = this.#reference
    if (error instanceof Again)
      return new UnavailableError(
        `${registry} answered ${TRIES} times with ${error.message} for ${what}`,
        'try again later',
        error,
      )
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
    return new UnavailableError(
      `${registry} cannot be reached for ${what} (${messageOf(cause)})`,
      'is there a network, or a proxy to go through? An archive works without: oci-archive:/path.tar',
      error,
    )
  }

  async #get(url: URL, headers: Readonly<Record<string, string>>, what: string): Promise<Response> {
    let answer = await this.#follow(url, headers)
    if (answer.status === 401) {
      const challenge = answer.headers.get('www-authenticate') ?? ''
      await answer.body?.cancel()
      this.#authorization = await this.#authorize(challenge, what)
      answer = await this.#follow(url, headers)
    }
    if (answer.ok) return answer
    const { status } = answer
    const detail = await errorText(answer)
    const { registry } = this.#reference
    switch (true) {
      case status === 401 || status === 403:
        throw new Final(
          `${registry} does not let this machine read ${what} (${status}${detail}); is the name right, or is it private?`,
        )
      case status === 404:
        throw new Final(`${registry} has no ${what} (404${detail}); check its name and tag`)
      case status === 416 && 'Range' in headers:
        // What is there of it does not go on: from the start, then.
        return this.#get(url, { 'Accept-Encoding': 'identity' }, what)
      case status === 408 || status === 429 || status >= 500:
        throw new Again(`${status}${detail}`, retryAfter(answer))
      default:
        throw new Final(`${registry} answered ${status}${detail} for ${what}`)
    }
  }

  /** Redirects by hand: what authorises here is nobody else's, and nothing leads from HTTPS to HTTP. */
  async #follow(first: URL, headers: Readonly<Record<string, string>>): Promise<Response> {
    let url = first
    for (let hop = 0; hop <= REDIRECTS; hop++) {
      const own = url.origin === this.#base.origin
      const authorization = own && this.#authorization !== undefined ? { Authorization: this.#authorization } : {}
      const answer = await this.#fetch(url, { ...headers, ...authorization })
      const location = answer.headers.get('location')
      if (![301, 302, 303, 307, 308].includes(answer.status) || location === null) return answer
      await answer.body?.cancel()
      url = this.#trusted(new URL(location, url), 'redirects to')
    }
    throw new Final(`${this.#reference.registry} redirects around`)
  }

  #trusted(url: URL, how: string): URL {
    const here = isLoopback(this.#base.host) && url.protocol === 'http:' && isLoopback(url.host)
    if (url.protocol === 'https:' || here) return url
    throw new Final(`${this.#reference.registry} ${how} ${url.origin}, which is not HTTPS`)
  }

  async #fetch(url: URL, headers: Readonly<Record<string, string>>): Promise<Response> {
    const { fetch = globalThis.fetch, signal, stallMs = STALL_MS } = this.#options
    const slow = new AbortController()
    const timer = setTimeout(() => slow.abort(new Error(`no answer within ${stallMs / 1000} s`)), stallMs)
    const end = signal === undefined ? slow.signal : AbortSignal.any([signal, slow.signal])
    try {
      const answer = await fetch(url, { headers, redirect: 'manual', signal: end })
      this.#aborts.set(answer, slow)
      this.#reached = true
      return answer
    } finally {
      clearTimeout(timer)
    }
  }

  /** What ends an answer whose body comes no more. */
  readonly #aborts = new WeakMap<Response, AbortController>()

  async *#body(answer: Response): AsyncGenerator<Uint8Array> {
    const { stallMs = STALL_MS } = this.#options
    const stalled = (): void => this.#aborts.get(answer)?.abort(new Error(`no byte came for ${stallMs / 1000} s`))
    let timer = setTimeout(stalled, stallMs)
    try {
      for await (const part of answer.body ?? []) {
        clearTimeout(timer)
        yield part
        timer = setTimeout(stalled, stallMs)
      }
    } finally {
      clearTimeout(timer)
    }
  }

  /** Gets what a challenge asks for. Name and password go to the realm that the registry itself names, over HTTPS. */
  async #authorize(challenge: string, what: string): Promise<string> {
    const { registry } = this.#reference
    const credentials = this.#options.credentials?.(registry)
    const basic =
      credentials === undefined
        ? undefined
        : `Basic ${Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64')}`
    const [scheme = ''] = challenge.split(' ', 1)
    if (scheme.toLowerCase() === 'basic' && basic !== undefined) return basic
    const parameters = new Map(
      [...challenge.matchAll(/([a-z]+)="([^"]*)"/gi)].map(([, name = '', value = '']) => [name.toLowerCase(), value]),
    )
    const realm = parameters.get('realm') ?? ''
    if (scheme.toLowerCase() !== 'bearer' || !URL.canParse(realm))
      throw new Final(`${registry} asks for credentials to read ${what}, and there are none for it`)
    const url = this.#trusted(new URL(realm), 'asks for credentials at')
    for (const name of ['service', 'scope'])
      if (parameters.has(name)) url.searchParams.set(name, parameters.get(name) ?? '')
    const answer = await this.#fetch(url, basic === undefined ? {} : { Authorization: basic })
    if (answer.status === 429 || answer.status >= 500)
      throw new Again(`${answer.status}${await errorText(answer)}`, retryAfter(answer))
    const text = await limitedText(answer)
    const token = answer.ok ? tokenOf(text) : undefined
    if (token === undefined)
      throw new Final(
        `${registry} gives no token to read ${what} (${answer.status}); is the name right, or is it private?`,
      )
    return `Bearer ${token}`
  }
}

/** Nothing that another try would change. */
class Final extends Error {}

/** The registry has no time or trouble of its own. */
class Again extends Error {
  readonly afterMs: number | undefined
  constructor(message: string, afterMs: number | undefined) {
    super(message)
    this.afterMs = afterMs
  }
}

/** The disk's failures, as against the network's. */
const DISK_CODES: readonly unknown[] = ['ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EFBIG', 'EACCES', 'EPERM', 'EBADF']
const isDiskError = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && DISK_CODES.includes(error.code)

function retryAfter(answer: Response): number | undefined {
  const seconds = answer.headers.get('retry-after') ?? ''
  return /^\d{1,5}$/.test(seconds) ? Number(seconds) * 1000 : undefined
}

function tokenOf(text: string): string | undefined {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
  if (typeof body !== 'object' || body === null) return undefined
  const token = 'token' in body ? body.token : 'access_token' in body ? body.access_token : undefined
  return typeof token === 'string' && /^[\x21-\x7e]{1,65536}$/.test(token) ? token : undefined
}

const SAID_BYTES = 200_000
const SAID_LENGTH = 200

async function limitedText(answer: Response): Promise<string> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of answer.body ?? []) {
    parts.push(part)
    length += part.length
    if (length > SAID_BYTES) break
  }
  return Buffer.concat(parts).toString()
}

/** What a registry says of an error, in a few words. */
async function errorText(answer: Response): Promise<string> {
  const text = await limitedText(answer).catch(() => '')
  const said = /"message"\s*:\s*"([^"]*)"/.exec(text)?.[1]?.slice(0, SAID_LENGTH)
  return said === undefined || said === '' ? '' : `: ${said}`
}
