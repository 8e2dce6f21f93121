import { execFile, execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createListener } from 'node:net'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, expect, test } from 'vitest'
import { bench, closeAll, listen, onClose, testAuthority } from './support.ts'

afterEach(closeAll)

const run = promisify(execFile)
const backend = (() => {
  try {
    const path = join(execFileSync('git', ['--exec-path'], { encoding: 'utf8' }).trim(), 'git-http-backend')
    return existsSync(path) ? path : undefined
  } catch {
    return undefined
  }
})()
if (backend === undefined) process.stderr.write('skipped: git and git-http-backend are not installed here\n')

const REAL = 'ghp_real-0123456789abcdef'

/** Git's smart HTTP for the repositories in `root`, for who has the token. */
function serveGit(program: string, root: string, seen: string[]) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const [, encoded = ''] = /^Basic (.+)$/.exec(request.headers.authorization ?? '') ?? []
    const credentials = Buffer.from(encoded, 'base64').toString()
    seen.push(credentials)
    if (credentials !== `x-access-token:${REAL}`) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end('who are you?')
      return
    }
    const [path, query = ''] = (request.url ?? '').split('?')
    const child = spawn(program, {
      env: {
        PATH: process.env['PATH'] ?? '',
        GIT_PROJECT_ROOT: root,
        GIT_HTTP_EXPORT_ALL: '1',
        REMOTE_USER: 'somebody',
        REQUEST_METHOD: request.method ?? '',
        PATH_INFO: path ?? '',
        QUERY_STRING: query,
        CONTENT_TYPE: request.headers['content-type'] ?? '',
        HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
        GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
      },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    request.pipe(child.stdin)
    child.stdin.on('error', () => undefined)
    let head = Buffer.alloc(0)
    const takeHead = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk])
      const end = head.indexOf('\r\n\r\n')
      if (end === -1) return
      const lines = head
        .subarray(0, end)
        .toString('latin1')
        .split('\r\n')
        .map((line) => line.split(': ') as [string, string])
      const status = lines.find(([name]) => name.toLowerCase() === 'status')?.[1] ?? '200'
      response.writeHead(
        Number(status.slice(0, 3)),
        Object.fromEntries(lines.filter(([name]) => name.toLowerCase() !== 'status')),
      )
      response.write(head.subarray(end + 4))
      child.stdout.off('data', takeHead)
      child.stdout.pipe(response)
    }
    child.stdout.on('data', takeHead)
  }
}

test.skipIf(backend === undefined)('git clones and pushes with a placeholder for a token', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'egress-git-'))
  onClose(() => rmSync(folder, { recursive: true, force: true }))
  const git = async (cwd: string, ...args: string[]) =>
    run('git', ['-c', 'user.name=a', '-c', 'user.email=a@b.test', '-c', 'init.defaultBranch=main', ...args], {
      cwd,
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: folder,
        GIT_TERMINAL_PROMPT: '0',
        GIT_SSL_CAINFO: join(folder, 'ca.pem'),
      },
    })
  mkdirSync(join(folder, 'served'))
  await git(folder, 'init', '--bare', 'served/repo.git')
  await git(join(folder, 'served/repo.git'), 'config', 'http.receivepack', 'true')
  mkdirSync(join(folder, 'first'))
  await git(join(folder, 'first'), 'init')
  writeFileSync(join(folder, 'first/file'), 'x'.repeat(3_000_000))
  await git(join(folder, 'first'), 'add', 'file')
  await git(join(folder, 'first'), 'commit', '-m', 'one')
  await git(join(folder, 'first'), 'push', join(folder, 'served/repo.git'), 'main')

  const seen: string[] = []
  const { certificate, key } = testAuthority.issue('git.test')
  const server = createServer({ cert: certificate, key }, serveGit(backend ?? '', join(folder, 'served'), seen))
  // The guest's port has to be the one that is listed: git puts it into Host.
  const listener = createListener({ allowHalfOpen: true })
  const port = await listen(listener)
  const { gateway, guest, of, events } = bench([`git.test:${port}`], await listen(server), {
    secrets: [{ name: 'GITHUB_TOKEN', placeholder: 'reve-github-token', value: () => REAL, hosts: ['git.test'] }],
  })
  await guest('git.test', port, listener)
  writeFileSync(join(folder, 'ca.pem'), gateway.certificate ?? '')

  const through = ['-c', `http.curloptResolve=git.test:${port}:127.0.0.1`, '-c', 'http.postBuffer=70000']
  const url = `https://x-access-token:reve-github-token@git.test:${port}/repo.git`
  await git(folder, ...through, 'clone', url, 'second')
  expect(readFileSync(join(folder, 'second/file'), 'utf8')).toHaveLength(3_000_000)
  // Larger than the buffer, so that it goes in chunks of unknown number.
  writeFileSync(join(folder, 'second/more'), randomBytes(300_000))
  await git(join(folder, 'second'), 'add', 'more')
  await git(join(folder, 'second'), 'commit', '-m', 'two')
  await git(join(folder, 'second'), ...through, 'push', 'origin', 'main')
  expect((await git(join(folder, 'served/repo.git'), 'log', '--format=%s', 'main')).stdout).toBe('two\none\n')
  expect(seen).toContain(`x-access-token:${REAL}`)
  expect(of('secret_used').length).toBeGreaterThan(0)
  expect(JSON.stringify(events)).not.toContain(REAL)
  await expect(
    git(folder, ...through, 'clone', `https://x-access-token:wrong@git.test:${port}/repo.git`, 'third'),
  ).rejects.toThrow(/Authentication failed/)
})
