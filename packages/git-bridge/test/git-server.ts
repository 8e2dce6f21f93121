import { spawn } from 'node:child_process'
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'

/** What the server does before it hands a request to git; true when it has answered. */
export type Gate = (request: IncomingMessage, response: ServerResponse) => boolean

/** A server of git's own, as a CGI program behind Node's, on this machine's loopback. */
export type GitServer = AsyncDisposable & {
  url(name: string): string
  /** Host and port, as in an address. */
  readonly host: string
}

type Options = { readonly gate?: Gate; readonly tls?: { readonly key: string; readonly cert: string } }

/** Serves the repositories below `root`; pushes are taken, whoever comes through the gate. */
export async function startGitServer(root: string, { gate, tls }: Options = {}): Promise<GitServer> {
  const listener: RequestListener = (request, response) => {
    if (gate?.(request, response) !== true) backend(root, request, response)
  }
  const server: Server = tls === undefined ? createServer(listener) : createSecureServer(tls, listener)
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const host = `127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  return {
    host,
    url: (name) => `${tls === undefined ? 'http' : 'https'}://${host}/${name}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise<void>((resolve) => void server.close(() => resolve()))
    },
  }
}

/** A gate that wants a login, and remembers each request's path and whether it brought the right one. */
export function wantLogin(login: { readonly username: string; readonly password: string }): {
  readonly gate: Gate
  readonly seen: { readonly path: string; readonly authorization: string | undefined }[]
} {
  const seen: { readonly path: string; readonly authorization: string | undefined }[] = []
  const right = `Basic ${Buffer.from(`${login.username}:${login.password}`).toString('base64')}`
  return {
    seen,
    gate: (request, response) => {
      const { authorization } = request.headers
      seen.push({ path: request.url ?? '', authorization })
      if (authorization === right) return false
      response.writeHead(401, { 'www-authenticate': 'Basic realm="test"' }).end('no')
      return true
    },
  }
}

function backend(root: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://x')
  const child = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env['PATH'] ?? '/usr/bin:/bin',
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'http.receivepack',
      GIT_CONFIG_VALUE_0: 'true',
      REMOTE_USER: 'tester',
      PATH_INFO: decodeURIComponent(pathname),
      QUERY_STRING: searchParams.toString(),
      REQUEST_METHOD: request.method ?? 'GET',
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  request.pipe(child.stdin)
  child.stdin.on('error', () => undefined)
  const chunks: Buffer[] = []
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk))
  child.on('close', () => {
    const whole = Buffer.concat(chunks)
    const end = whole.indexOf('\r\n\r\n')
    let status = 200
    for (const line of whole.toString('latin1', 0, end).split('\r\n')) {
      const [name = '', value = ''] = line.split(/: (.*)/)
      if (name === 'Status') status = Number.parseInt(value, 10)
      else response.setHeader(name, value)
    }
    response.writeHead(status).end(whole.subarray(end + 4))
  })
}
