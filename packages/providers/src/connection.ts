import { type Proxies, proxyFor } from './proxy.ts'

/** How a server is reached, where the platform's own way will not do. */
export type Connection = {
  readonly proxies?: Proxies
  /** Certificates (PEM) that are trusted besides the usual ones. */
  readonly ca?: string
}

/**
 * A fetch for the servers of one URL that goes through the proxy, and trusts the authority, that were given; undefined
 * where the platform's own does.
 *
 * @throws TypeError at the first request, for a proxy that is no http or https URL.
 */
export function fetchThrough(url: URL, connection: Connection): typeof fetch | undefined {
  const proxy = proxyFor(url, connection.proxies ?? {})
  const { ca } = connection
  if (proxy === undefined && ca === undefined) return undefined
  // Of weight, and few have a use for it.
  const load = async () => {
    const [undici, tls] = await Promise.all([import('undici'), import('node:tls')])
    const trusted = ca === undefined ? {} : { ca: [...tls.getCACertificates('default'), ca] }
    // Time limits are the transport's.
    const patient = { headersTimeout: 0, bodyTimeout: 0 }
    const dispatcher =
      proxy === undefined
        ? new undici.Agent({ ...patient, connect: trusted })
        : new undici.ProxyAgent({ ...patient, uri: proxy, requestTls: trusted, proxyTls: trusted })
    return { fetch: undici.fetch, dispatcher }
  }
  let loaded: ReturnType<typeof load> | undefined
  return async (input, init) => {
    loaded ??= load()
    const { fetch, dispatcher } = await loaded
    // The platform's Request and that of the library are of two kinds: only plain values pass between them.
    const request = new Request(input, init)
    const body = request.body === null ? undefined : await request.text()
    const response = await fetch(request.url, {
      method: request.method,
      headers: [...request.headers],
      redirect: request.redirect,
      signal: request.signal,
      dispatcher,
      ...(body !== undefined && { body }),
    })
    return new Response(response.body as ReadableStream<Uint8Array> | null, {
      status: response.status,
      headers: [...response.headers],
    })
  }
}
