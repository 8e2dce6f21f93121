import { execFileSync, spawn } from 'node:child_process'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { git, repository, treeOf, world, type World } from './repositories.ts'

/** Git's own HTTP server, as a CGI program behind Node's. */
function backend(root: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://x')
  const child = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env['PATH'] ?? '/usr/bin:/bin',
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      REMOTE_USER: 'tester',
      PATH_INFO: pathname,
      QUERY_STRING: searchParams.toString(),
      REQUEST_METHOD: request.method ?? 'GET',
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  request.pipe(child.stdin)
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

let here: World
let server: Server
beforeEach(async () => {
  here = await world()
  server = createServer((request, response) => backend(here.root, request, response))
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
})
afterEach(async () => {
  server.close()
  await here.remove()
})
const urlOf = (name: string): string => {
  const address = server.address()
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}/${name}`
}

test('imports from, and pushes to, a server', async () => {
  const work = repository(here.path('work'), { 'a/b.txt': 'b', 'c.txt': 'c' })
  git(here.root, 'clone', '--quiet', '--bare', 'work', 'remote.git')
  git(here.path('remote.git'), 'config', 'http.receivepack', 'true')
  const { tree, commit } = await here.bridge.import({ src: urlOf('remote.git'), name: 'web', actor: 'tester' })
  expect(commit).toBe(git(work, 'rev-parse', 'HEAD'))
  const exported = await here.bridge.export({ name: 'web', tree, branch: 'same', message: 'same', actor: 'tester' })
  expect(exported.gitTree).toBe(treeOf(work))
  await here.bridge.export({
    name: 'web',
    tree: here.store.emptyTree,
    branch: 'same',
    message: 'emptied',
    actor: 'tester',
  })
  const pushed = await here.bridge.push({ name: 'web', branch: 'same', actor: 'tester' })
  expect(pushed.outcome).toBe('created')
  expect(
    execFileSync('git', ['-C', here.path('remote.git'), 'log', '-1', '--format=%s', 'same'], { encoding: 'utf8' }),
  ).toBe('emptied\n')
})

test('a server that has no such repository is told from one that does not answer', async () => {
  await expect(here.bridge.import({ src: urlOf('nothing.git'), name: 'web', actor: 'tester' })).rejects.toMatchObject({
    code: 'not_found',
  })
  await expect(
    here.bridge.import({ src: 'http://no-such-host.invalid/x.git', name: 'web', actor: 'tester' }),
  ).rejects.toMatchObject({ code: 'unreachable' })
})
