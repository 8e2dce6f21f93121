import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { sha256, type TestImage } from './tools.ts'

/** What a registry does wrong with the requests whose path matches, in order; each once. */
export type Trouble =
  | {
      readonly kind: 'status'
      readonly status: number
      readonly headers?: Readonly<Record<string, string>>
      readonly body?: string
    }
  /** Sends so many bytes of the answer and cuts the connection. */
  | { readonly kind: 'cut'; readonly after: number }
  /** Sends so many bytes and then nothing. */
  | { readonly kind: 'hang'; readonly after: number }
  /** Ends early as if that were all. */
  | { readonly kind: 'short'; readonly after: number }
  /** Other bytes, as many. */
  | { readonly kind: 'damage' }
  | { readonly kind: 'more' }
  | { readonly kind: 'redirect'; readonly to: string }

export type RegistryServer = {
  /** `127.0.0.1:<port>` */
  readonly host: string
  /** Every request, as `GET /v2/... range authorization`. */
  readonly requests: readonly { readonly path: string; readonly range: string; readonly authorization: string }[]
  readonly troubles: Map<RegExp, Trouble[]>
  /** Names and passwords that get a token; without any, everybody gets one. */
  credentials: string | undefined
  /** Whether a token is asked for. */
  closed: boolean
  ranges: boolean
  tag(name: string, manifest: Uint8Array, ...images: readonly TestImage[]): void
  close(): Promise<void>
}

const TOKEN = 'a-token-of-this-registry'

/** A registry on loopback: the API of version 2 with tokens, ranges, and trouble on demand. */
export async function serveRegistry(): Promise<RegistryServer> {
  const manifests = new Map<string, Buffer>()
  const blobs = new Map<string, Buffer>()
  const requests: { path: string; range: string; authorization: string }[] = []
  const troubles = new Map<RegExp, Trouble[]>()

  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const url = new URL(request.url ?? '/', `http://${host}`)
    const { authorization = '', range = '' } = request.headers
    requests.push({ path: url.pathname + url.search, range, authorization })
    const trouble = [...troubles].find(([path, list]) => path.test(url.pathname) && list.length > 0)?.[1].shift()
    if (trouble?.kind === 'status') {
      response.writeHead(trouble.status, trouble.headers)
      response.end(trouble.body)
      return
    }
    if (trouble?.kind === 'redirect') {
      response.writeHead(307, { location: trouble.to })
      response.end()
      return
    }
    if (url.pathname === '/token') {
      if (
        server.credentials !== undefined &&
        authorization !== `Basic ${Buffer.from(server.credentials).toString('base64')}`
      ) {
        response.writeHead(401)
        response.end()
        return
      }
      response.end(JSON.stringify({ token: TOKEN }))
      return
    }
    if (server.closed && authorization !== `Bearer ${TOKEN}`) {
      const scope = `repository:${/^\/v2\/(.+)\/(?:manifests|blobs)\//.exec(url.pathname)?.[1]}:pull`
      response.writeHead(401, {
        'www-authenticate': `Bearer realm="http://${host}/token",service="test registry",scope="${scope}"`,
      })
      response.end(JSON.stringify({ errors: [{ code: 'UNAUTHORIZED', message: 'authentication required' }] }))
      return
    }
    const [, kind, name = ''] = /^\/v2\/(?:.+)\/(manifests|blobs)\/(.+)$/.exec(url.pathname) ?? []
    const found = kind === 'manifests' ? manifests.get(name) : blobs.get(name)
    if (found === undefined) {
      response.writeHead(404)
      response.end(JSON.stringify({ errors: [{ code: 'UNKNOWN', message: 'nothing of that name is known here' }] }))
      return
    }
    send(found, range, trouble, response)
  }

  const send = (whole: Buffer, range: string, trouble: Trouble | undefined, response: ServerResponse): void => {
    const start = server.ranges ? Number(/^bytes=(\d+)-$/.exec(range)?.[1] ?? 0) : 0
    if (start > 0 && start >= whole.length) {
      response.writeHead(416)
      response.end()
      return
    }
    let bytes = whole.subarray(start)
    if (trouble?.kind === 'damage') bytes = Buffer.alloc(bytes.length, 'x')
    if (trouble?.kind === 'more') bytes = Buffer.concat([bytes, Buffer.from('and more')])
    const partial = start > 0 ? { 'content-range': `bytes ${start}-${whole.length - 1}/${whole.length}` } : {}
    const length = trouble?.kind === 'short' ? {} : { 'content-length': bytes.length }
    response.writeHead(start > 0 ? 206 : 200, { ...length, ...partial })
    switch (trouble?.kind) {
      case 'cut':
        response.write(bytes.subarray(0, trouble.after), () => response.destroy())
        return
      case 'hang':
        response.write(bytes.subarray(0, trouble.after))
        return
      case 'short':
        response.end(bytes.subarray(0, trouble.after))
        return
      default:
        response.end(bytes)
    }
  }

  const http = createServer(handle)
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done))
  const host = `127.0.0.1:${(http.address() as AddressInfo).port}`
  const server: RegistryServer = {
    host,
    requests,
    troubles,
    credentials: undefined,
    closed: true,
    ranges: true,
    tag: (name, manifest, ...images) => {
      manifests.set(name, Buffer.from(manifest))
      manifests.set(sha256(manifest), Buffer.from(manifest))
      for (const image of images) {
        manifests.set(image.digest, image.manifest)
        for (const [digest, bytes] of image.blobs) blobs.set(digest, bytes)
      }
    },
    close: async () => {
      http.closeAllConnections()
      await new Promise((done) => http.close(done))
    },
  }
  return server
}
