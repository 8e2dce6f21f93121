/** Proxies as the usual variables name them: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`. */
export type Proxies = {
  /** URL of the proxy for http: URLs. */
  readonly http?: string
  /** URL of the proxy for https: URLs. */
  readonly https?: string
  /** Hosts that are reached without one: names, `.suffix` or `*.suffix`, each with a port or not, by commas or spaces; `*` is all. */
  readonly except?: string
}

/** Reads the variables, in both ways of writing them; the small one counts first, as it does for curl. */
export function proxiesOf(env: (name: string) => string | undefined): Proxies {
  const either = (name: string): string | undefined => env(name.toLowerCase()) || env(name) || undefined
  const all = either('ALL_PROXY')
  // A server that runs as CGI gets HTTP_PROXY from a header of whoever asks.
  const http = env('http_proxy') || (env('REQUEST_METHOD') === undefined ? env('HTTP_PROXY') : undefined) || all
  const https = either('HTTPS_PROXY') ?? all
  const except = either('NO_PROXY')
  return {
    ...(http !== undefined && { http }),
    ...(https !== undefined && { https }),
    ...(except !== undefined && { except }),
  }
}

/** The proxy for a URL, if it has one. This machine itself is never asked through a proxy. */
export function proxyFor(url: URL, proxies: Proxies): string | undefined {
  const proxy = url.protocol === 'https:' ? proxies.https : proxies.http
  if (proxy === undefined || isLoopback(url.hostname)) return undefined
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port
  const excepted = (proxies.except ?? '')
    .split(/[\s,]+/)
    .some((entry) => matches(entry.toLowerCase(), url.hostname, port))
  if (excepted) return undefined
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(proxy) ? proxy : `http://${proxy}`
}

function matches(entry: string, hostname: string, port: string): boolean {
  if (entry === '*') return true
  const [, name = '', onPort] = /^(?:\*?\.)?(\[[^\]]*\]|[^:]*)(?::(\d+))?$/.exec(entry) ?? []
  if (name === '' || (onPort !== undefined && onPort !== port)) return false
  return hostname === name || hostname.endsWith(`.${name}`)
}

function isLoopback(hostname: string): boolean {
  return /^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/.test(hostname)
}
