import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync, chmodSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GitError, type GitBridgeOptions, type GitCredential } from '../src/index.ts'
import { startGitServer, wantLogin, type GitServer } from './git-server.ts'
import { git, repository, treeOf, world, type World } from './repositories.ts'

let here: World
beforeEach(async () => {
  here = await world()
  repository(here.path('work'), { 'a/b.txt': 'b', 'c.txt': 'c' })
  git(here.root, 'clone', '--quiet', '--bare', 'work', 'remote.git')
})
afterEach(() => here.remove())

const actor = 'tester'
const login = { username: 'robot', password: 'sentinel/4711:ü?' }
const forms = [
  login.password,
  encodeURIComponent(login.password),
  Buffer.from(`${login.username}:${login.password}`).toString('base64'),
]

/** A second bridge on a folder of its own. */
async function bridgeWith(options: Partial<GitBridgeOptions>) {
  const other = await world(options)
  return { ...other, [Symbol.asyncDispose]: () => other.remove() }
}

const credentialFor = ({ host }: GitServer, extra: Partial<typeof login> = {}): readonly GitCredential[] => [
  { scheme: 'http', host, ...login, ...extra },
]

async function refusal(promise: Promise<unknown>): Promise<GitError> {
  const error: unknown = await promise.catch((caught: unknown) => caught)
  if (error instanceof GitError) return error
  throw new Error('it was accepted, or failed otherwise', { cause: error })
}

test('imports from, and pushes to, a server', async () => {
  await using server = await startGitServer(here.root)
  const { tree, commit } = await here.bridge.import({ src: server.url('remote.git'), name: 'web', actor })
  expect(commit).toBe(git(here.path('work'), 'rev-parse', 'HEAD'))
  const exported = await here.bridge.export({ name: 'web', tree, branch: 'same', message: 'same', actor })
  expect(exported.gitTree).toBe(treeOf(here.path('work')))
  await here.bridge.export({ name: 'web', tree: here.store.emptyTree, branch: 'same', message: 'emptied', actor })
  expect((await here.bridge.push({ name: 'web', branch: 'same', actor })).outcome).toBe('created')
  expect(git(here.path('remote.git'), 'log', '-1', '--format=%s', 'same')).toBe('emptied')
})

test('a server that has no such repository is told from one that does not answer', async () => {
  await using server = await startGitServer(here.root)
  const importFrom = (src: string) => refusal(here.bridge.import({ src, name: 'web', actor }))
  expect((await importFrom(server.url('nothing.git'))).code).toBe('not_found')
  expect((await importFrom('http://no-such-host.invalid/x.git')).code).toBe('unreachable')
})

test('a push that is called off says that it may have arrived', async () => {
  const stop = new AbortController()
  await using server = await startGitServer(here.root, {
    gate: (request) => {
      if (request.method !== 'POST' || request.url?.endsWith('git-receive-pack') !== true) return false
      stop.abort()
      return true
    },
  })
  const { tree } = await here.bridge.import({ src: server.url('remote.git'), name: 'web', actor })
  await here.bridge.export({ name: 'web', tree, branch: 'new', message: 'new', actor })
  const error = await refusal(here.bridge.push({ name: 'web', branch: 'new', actor, signal: stop.signal }))
  expect([error.code, error.hint]).toEqual(['cancelled', expect.stringContaining('push it again')])
})

describe('a server that wants a login', () => {
  test('gets it for import and push, and nobody else sees it', async () => {
    const { gate, seen } = wantLogin(login)
    const spied: string[] = []
    await using server = await startGitServer(here.root, {
      gate: (request, response) => {
        // git is running and has the login now.
        if (request.headers.authorization !== undefined) spied.push(everyProcess(), everyFile(here.root))
        return gate(request, response)
      },
    })
    // A git that notes what it was called with.
    const spy = here.path('spy')
    writeFileSync(spy, `#!/bin/sh\n{ env; printf '%s\\n' "$@"; } >>${here.path('calls')}\nexec git "$@"\n`)
    chmodSync(spy, 0o755)
    await using other = await bridgeWith({ credentials: credentialFor(server), git: spy })
    const { tree } = await other.bridge.import({ src: server.url('remote.git'), name: 'web', actor })
    await other.bridge.export({ name: 'web', tree: other.store.emptyTree, branch: 'new', message: 'new', actor })
    expect((await other.bridge.push({ name: 'web', branch: 'new', actor })).outcome).toBe('created')
    expect(tree).not.toBe(other.store.emptyTree)
    expect(seen.filter(({ authorization }) => authorization !== undefined).length).toBeGreaterThan(2)
    spied.push(everyFile(other.root), readFileSync(here.path('calls'), 'utf8'))
    expect(spied.length).toBeGreaterThan(5)
    for (const text of spied) for (const form of forms) expect(text.includes(form)).toBe(false)
  })

  test('gets none from a bridge that has none, or has one for another host, port or scheme', async () => {
    const { gate, seen } = wantLogin(login)
    await using server = await startGitServer(here.root, { gate })
    const others: readonly (readonly GitCredential[])[] = [
      [],
      [{ scheme: 'http', host: '127.0.0.1', ...login }],
      [{ scheme: 'http', host: 'localhost', ...login }],
      [{ scheme: 'https', host: server.host, ...login }],
    ]
    for (const credentials of others) {
      await using other = await bridgeWith({ credentials })
      const error = await refusal(other.bridge.import({ src: server.url('remote.git'), name: 'web', actor }))
      expect([error.code, error.message]).toEqual(['auth_failed', expect.stringContaining('does not have')])
    }
    expect(seen.every(({ authorization }) => authorization === undefined)).toBe(true)
  })

  test('that does not take it is said, also when it repeats it in its answer', async () => {
    await using server = await startGitServer(here.root, {
      gate: (request, response) => {
        const { authorization = '' } = request.headers
        const decoded = Buffer.from(authorization.replace('Basic ', ''), 'base64').toString('utf8')
        if (authorization === '') response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end()
        else
          response
            .writeHead(403, { 'content-type': 'text/plain; charset=utf-8' })
            .end(`you sent ${authorization} which is ${decoded}\n`)
        return true
      },
    })
    await using other = await bridgeWith({ credentials: credentialFor(server) })
    const error = await refusal(other.bridge.import({ src: server.url('remote.git'), name: 'web', actor }))
    expect([error.code, error.message]).toEqual(['auth_failed', expect.stringContaining('does not take')])
    expect(error.message).toContain('[redacted]')
    for (const form of forms) expect(error.message.includes(form)).toBe(false)
    expect(other.store.refs.list()).toEqual([])
  })

  test('a wrong password is told from none, and asked for again at each verb', async () => {
    const { gate } = wantLogin(login)
    await using server = await startGitServer(here.root, { gate })
    let password = 'old-password'
    await using other = await bridgeWith({ credentials: async () => credentialFor(server, { password }) })
    const importIt = () => other.bridge.import({ src: server.url('remote.git'), name: 'web', actor })
    const error = await refusal(importIt())
    expect([error.code, error.hint]).toEqual(['auth_failed', expect.stringContaining('expired')])
    password = login.password
    expect((await importIt()).commit).toBe(git(here.path('work'), 'rev-parse', 'HEAD'))
  })

  test('and is asked for it without asking anybody else', async () => {
    const { gate } = wantLogin(login)
    await using server = await startGitServer(here.root, { gate })
    const asked = here.path('asked')
    writeFileSync(here.path('ask'), `#!/bin/sh\necho ran >>${asked}\necho x\n`)
    chmodSync(here.path('ask'), 0o755)
    for (const key of ['GIT_ASKPASS', 'SSH_ASKPASS']) process.env[key] = here.path('ask')
    try {
      expect((await refusal(here.bridge.import({ src: server.url('remote.git'), name: 'web', actor }))).code).toBe(
        'auth_failed',
      )
    } finally {
      for (const key of ['GIT_ASKPASS', 'SSH_ASKPASS']) delete process.env[key]
    }
    expect(existsSync(asked)).toBe(false)
  })
})

describe('a redirect', () => {
  const redirectTo = (target: () => string) =>
    startGitServer(here.root, {
      gate: (request, response) => {
        response.writeHead(302, { location: `${target()}${request.url ?? ''}` }).end()
        return true
      },
    })

  test('to another host does not take the login along, nor that host its own', async () => {
    const { gate, seen } = wantLogin(login)
    await using target = await startGitServer(here.root, { gate })
    await using first = await redirectTo(() => `http://${target.host}`)
    await using other = await bridgeWith({ credentials: [...credentialFor(first), ...credentialFor(target)] })
    const error = await refusal(other.bridge.import({ src: first.url('remote.git'), name: 'web', actor }))
    expect(error.code).toBe('auth_failed')
    expect(seen.length).toBeGreaterThan(0)
    expect(seen.every(({ authorization }) => authorization === undefined)).toBe(true)
  })

  test('without a login is followed', async () => {
    await using target = await startGitServer(here.root)
    await using first = await redirectTo(() => `http://${target.host}`)
    const { commit } = await here.bridge.import({ src: first.url('remote.git'), name: 'web', actor })
    expect(commit).toBe(git(here.path('work'), 'rev-parse', 'HEAD'))
  })
})

const certificate = (folder: string) => {
  const made = spawnSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
      ...['-keyout', 'key.pem', '-out', 'cert.pem', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'],
    ],
    { cwd: folder },
  )
  return made.status === 0
}
const hasOpenssl = spawnSync('openssl', ['version']).status === 0
if (!hasOpenssl) console.warn('no openssl here: servers with a certificate of their own are not tested')

describe.skipIf(!hasOpenssl)('https', () => {
  test('wants a certificate that is trusted, and takes an authority that is named', async () => {
    mkdirSync(here.path('tls'))
    expect(certificate(here.path('tls'))).toBe(true)
    const tls = {
      key: readFileSync(here.path('tls/key.pem'), 'utf8'),
      cert: readFileSync(here.path('tls/cert.pem'), 'utf8'),
    }
    const { gate, seen } = wantLogin(login)
    await using server = await startGitServer(here.root, { gate, tls })
    const credentials: readonly GitCredential[] = [{ scheme: 'https', host: server.host, ...login }]
    await using trusting = await bridgeWith({ credentials, http: { caFile: here.path('tls/cert.pem') } })
    await using careful = await bridgeWith({ credentials })
    const src = server.url('remote.git')
    const error = await refusal(careful.bridge.import({ src, name: 'web', actor }))
    expect([error.code, error.message]).toEqual(['unreachable', expect.stringContaining('not trusted')])
    expect(seen).toEqual([])
    expect((await trusting.bridge.import({ src, name: 'web', actor })).commit).not.toBe(null)
  })

  test('never becomes http on the way', async () => {
    mkdirSync(here.path('tls'))
    expect(certificate(here.path('tls'))).toBe(true)
    const tls = {
      key: readFileSync(here.path('tls/key.pem'), 'utf8'),
      cert: readFileSync(here.path('tls/cert.pem'), 'utf8'),
    }
    let plain = 0
    await using target = await startGitServer(here.root, { gate: () => ++plain < 0 })
    await using first = await startGitServer(here.root, {
      tls,
      gate: (request, response) => {
        response.writeHead(302, { location: `http://${target.host}${request.url ?? ''}` }).end()
        return true
      },
    })
    await using other = await bridgeWith({ http: { caFile: here.path('tls/cert.pem') } })
    await refusal(other.bridge.import({ src: first.url('remote.git'), name: 'web', actor }))
    expect(plain).toBe(0)
  })
})

/** Arguments and environment of every process that may be looked at; nothing where the system does not show them. */
function everyProcess(): string {
  if (!existsSync('/proc/self/environ')) return ''
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => ['cmdline', 'environ'].map((file) => readQuietly(join('/proc', pid, file))))
    .join('\n')
}

/** All bytes of all files below a folder. */
function everyFile(folder: string): string {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readQuietly(join(entry.parentPath, entry.name)))
    .join('\n')
}

/** A process may end, and a file go, while it is looked at. */
function readQuietly(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error) return ''
    throw error
  }
}
