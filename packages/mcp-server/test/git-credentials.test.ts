import { execFileSync, spawnSync } from 'node:child_process'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { initComputer, openComputer } from '../src/index.ts'
import { temporary } from './support.ts'

const password = 'sentinel-password-4711'
const right = `Basic ${Buffer.from(`robot:${password}`).toString('base64')}`

test('a seat imports with the login of the computer, and neither it nor the data directory sees the login', async () => {
  const folder = await temporary()
  const remote = join(folder, 'remote.git')
  await mkdir(remote)
  const git = (...args: readonly string[]): string =>
    execFileSync('git', ['-c', 'user.name=T', '-c', 'user.email=t@t', ...args], { cwd: remote, encoding: 'utf8' })
  git('init', '--quiet', '--bare', '--initial-branch=main')
  const tree = git('mktree', '--missing').trim()
  git('update-ref', 'refs/heads/main', git('commit-tree', tree, '-m', 'first').trim())
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://x')
    if (request.headers.authorization !== right) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end()
      return
    }
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { stdout } = spawnSync('git', ['http-backend'], {
        input: Buffer.concat(chunks),
        env: {
          PATH: process.env['PATH'] ?? '/usr/bin:/bin',
          GIT_PROJECT_ROOT: folder,
          GIT_HTTP_EXPORT_ALL: '1',
          PATH_INFO: url.pathname,
          QUERY_STRING: url.searchParams.toString(),
          REQUEST_METHOD: request.method ?? 'GET',
          CONTENT_TYPE: request.headers['content-type'] ?? '',
          GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
          GIT_CONFIG_COUNT: '1',
          GIT_CONFIG_KEY_0: 'safe.directory',
          GIT_CONFIG_VALUE_0: '*',
        },
      })
      const end = stdout.indexOf('\r\n\r\n')
      for (const line of stdout.toString('latin1', 0, end).split('\r\n')) {
        const [name = '', value = ''] = line.split(/: (.*)/)
        response.setHeader(name, value)
      }
      response.end(stdout.subarray(end + 4))
    })
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const host = `127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  const root = join(folder, 'kc')
  await initComputer(root)
  const computer = await openComputer({
    root,
    identity: { name: 'Computer', email: 'computer@example.com' },
    hostFingerprint: 'test',
    gitCredentials: async () => [{ scheme: 'http', host, username: 'robot', password }],
  })
  try {
    const { token } = computer.seats.create('tester')
    const seat = computer.seats.authenticate(token)
    if (seat === undefined) throw new Error('the token is not known')
    const call = (action: string, args: object) =>
      computer.call(seat, 'git', { action, ...args }, { signal: new AbortController().signal })
    const imported = await call('import', { src: `http://${host}/remote.git`, name: 'it' })
    expect(imported).toMatchObject({ isError: false, text: expect.stringContaining('as ref it') })
    await call('import', { src: `http://robot:${password}@${host}/remote.git`, name: 'other' })
  } finally {
    await computer.close()
    server.closeAllConnections()
    server.close()
  }
  const files = (await readdir(root, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile())
  const texts = await Promise.all(files.map((entry) => readFile(join(entry.parentPath, entry.name), 'latin1')))
  expect(texts.length).toBeGreaterThan(3)
  for (const form of [password, right.slice('Basic '.length)])
    expect(texts.some((text) => text.includes(form))).toBe(false)
})
