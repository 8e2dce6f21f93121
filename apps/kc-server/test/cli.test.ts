import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, realpath, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { initComputer, openSeats } from '@reve/mcp-server'
import { afterEach, describe, expect, test } from 'vitest'

const main = fileURLToPath(new URL('../src/main.ts', import.meta.url))
if (process.getuid?.() !== 0) process.stderr.write('not root: actions of another user are not tested\n')
const children: ChildProcess[] = []
afterEach(() => children.splice(0).forEach((child) => child.kill('SIGKILL')))

const temporary = async (): Promise<string> => realpath(await mkdtemp(join(tmpdir(), 'kc-cli-')))

type Env = Readonly<Record<string, string>>
type User = { readonly uid?: number; readonly gid?: number }
function start(
  args: readonly string[],
  env: Env,
  user: User = {},
): ChildProcess & { readonly stdout: Readable; readonly stderr: Readable } {
  const child = spawn(process.execPath, ['--conditions=@reve/source', main, ...args], {
    env: { ...process.env, ...env },
    ...user,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.push(child)
  return child
}

/** Waits until there is such a file; the test's own time is the limit. */
async function appears(path: string): Promise<void> {
  while (!(await readdir(join(path, '..'))).includes(basename(path))) await delay(10)
}

async function kc(
  args: readonly string[],
  env: Env = {},
  user: User = {},
): Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }> {
  const child = start(args, env, user)
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (stdout += String(chunk)))
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, stdout, stderr }
}

/** A new computer with one seat, made here: what the program's own verbs do has tests of its own, and each start takes its time. */
async function computer() {
  const root = join(await temporary(), 'kc')
  await initComputer(root)
  await using seats = await openSeats(root)
  return { root, token: seats.create('me').token }
}

/** A served computer with one seat. */
async function served(env: Env = {}) {
  const made = await computer()
  return { ...made, ...(await serve(made.root, env)) }
}

async function serve(root: string, env: Env = {}) {
  const child = start(['serve', '--port', '0', '--json'], { KC_ROOT: root, ...env })
  let stderr = ''
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
  const { url } = JSON.parse(line) as { readonly url: string }
  return { child, url, stderr: () => stderr }
}

async function connect(url: string, token: string) {
  const client = new Client({ name: 'test', version: '1' })
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${token}` } } }),
  )
  const call = async (family: string, args: Readonly<Record<string, unknown>>): Promise<string> => {
    const result = await client.callTool({ name: family, arguments: { ...args } })
    const [first] = Array.isArray(result.content) ? result.content : []
    return String(first?.text)
  }
  return { client, call }
}

test('prints version and help on standard output, usage errors on standard error', async () => {
  const [version, help, wrong] = await Promise.all([kc(['--version']), kc(['help', 'env']), kc(['srve'])])
  expect(version).toMatchObject({ code: 0, stdout: expect.stringMatching(/^kc \d+\.\d+\.\d+\n$/), stderr: '' })
  expect(help.stdout).toContain('KC_SEAT_TOKEN')
  expect(wrong).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('no command "srve"') })
})

test('a reader that has gone ends neither a command nor a server', async () => {
  const { root, token } = await computer()
  const child = start(['help', 'env'], {})
  child.stdout.destroy()
  child.stderr.destroy()
  const ended = once(child, 'close')
  const { url, child: server } = await serve(root)
  server.stdout.destroy()
  server.stderr.destroy()
  expect(await ended).toEqual([0, null])
  // Makes the server write: a media type that it does not take is reported.
  await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'text/plain' } })
  expect((await fetch(new URL('/healthz', url))).status).toBe(200)
})

test('init makes a computer for its owner alone, and again changes nothing', async () => {
  const root = join(await temporary(), 'a computer')
  expect(await kc(['init', '--root', root])).toMatchObject({ code: 0, stdout: `made a computer in ${root}\n` })
  expect(await kc(['init', '--root', root])).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('nothing was changed'),
  })
  expect((await stat(root)).mode & 0o777).toBe(0o700)
  for (const name of await readdir(root)) expect([name, (await stat(join(root, name))).mode & 0o077]).toEqual([name, 0])
})

describe('seats', () => {
  test('a token is on standard output alone, once, and works beside a running server', async () => {
    const { root, url } = await served()
    const [made, weird, none] = await Promise.all([
      kc(['seat', 'create', 'late'], { KC_ROOT: root }),
      kc(['seat', 'create', '../x'], { KC_ROOT: root }),
      kc(['seat', 'remove', 'none'], { KC_ROOT: root }),
    ])
    expect(made).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^kc_[\w-]{43}\n$/),
      stderr: expect.stringContaining('shown once'),
    })
    const { client, call } = await connect(url, made.stdout.trim())
    expect(await call('seat', { action: 'whoami' })).toContain('seat late')
    await client.close()
    const [list, again] = await Promise.all([
      kc(['seat', 'list'], { KC_ROOT: root }),
      kc(['seat', 'create', 'late'], { KC_ROOT: root }),
    ])
    expect(list.stdout).toMatch(/^late .*\nme /)
    expect(list.stdout).not.toContain('kc_')
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('rekey') })
    expect(weird).toMatchObject({ code: 2 })
    expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining('no seat "none"') })
  })

  test('KC_SEAT_TOKEN is the first seat, re-keyed at each start; a weak one, or one that is taken, is refused', async () => {
    const { root, token: taken } = await computer()
    const weak = await kc(['serve', '--port', '0'], { KC_ROOT: root, KC_SEAT_TOKEN: 'short' })
    expect(weak).toMatchObject({ code: 3, stderr: expect.stringMatching(/KC_SEAT_TOKEN.*too weak/) })
    const twice = await kc(['serve', '--port', '0'], { KC_ROOT: root, KC_SEAT_TOKEN: taken })
    expect(twice).toMatchObject({ code: 3, stderr: expect.stringMatching(/KC_SEAT_TOKEN.*that of the seat "me"/) })
    expect(twice.stderr).not.toContain(taken)
    for (const token of ['a-token-that-the-host-hands-in-0123456789', 'another-one-that-the-host-hands-in-01234']) {
      const { url, child } = await serve(root, { KC_SEAT_TOKEN: token })
      const { client, call } = await connect(url, token)
      expect(await call('seat', { action: 'whoami' })).toContain('seat operator')
      await client.close()
      child.kill('SIGTERM')
      expect(await once(child, 'close')).toEqual([0, null])
    }
  })
})

describe('serve refuses', () => {
  test('a folder that holds no computer, with 3', async () => {
    const root = await temporary()
    const [served, seat, checked] = await Promise.all([
      kc(['serve'], { KC_ROOT: root }),
      kc(['seat', 'create', 'x'], { KC_ROOT: root }),
      kc(['fsck'], { KC_ROOT: root }),
    ])
    expect(served).toMatchObject({ code: 3, stderr: expect.stringMatching(/holds no computer.*kc init/) })
    expect(seat.code).toBe(3)
    expect(checked).toMatchObject({ code: 3, stderr: expect.stringContaining('kc init') })
    expect(await readdir(root)).toEqual([])
  })

  test('a wrong variable, with 3 and its name', async () => {
    expect(await kc(['serve'], { KC_ROOT: await temporary(), KC_PORT: 'http' })).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('KC_PORT'),
    })
  })

  test('a computer that is served already, with 5 and the process; a port in use, with what to do', async () => {
    const [{ root, child, url }, other] = await Promise.all([served(), computer()])
    const port = new URL(url).port
    const [second, inUse, again] = await Promise.all([
      kc(['serve', '--port', '0'], { KC_ROOT: root }),
      kc(['serve', '--port', port], { KC_ROOT: other.root }),
      kc(['init'], { KC_ROOT: root }),
    ])
    expect(second).toMatchObject({ code: 5, stderr: expect.stringContaining(`${child.pid}`) })
    expect(inUse).toMatchObject({ code: 1, stderr: expect.stringMatching(new RegExp(`${port} is in use.*--port`)) })
    expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing was changed') })
  })
})

const other = { uid: 65_534, gid: 65_534 }
/** Whether another user may run this very checkout: it may stand in a folder that only its owner enters. */
const otherCan =
  process.getuid?.() === 0 &&
  spawnSync(process.execPath, ['-e', `fs.accessSync(${JSON.stringify(main)})`], { ...other, cwd: '/' }).status === 0
if (!otherCan) process.stderr.write('no other user can run this checkout: what they are told is not tested\n')

test.skipIf(!otherCan)('a folder that this user cannot use is said in one sentence', async () => {
  const folder = await temporary()
  const { root } = await computer()
  await chmod(root, 0o700)
  const [made, served] = await Promise.all([
    kc(['init'], { KC_ROOT: join(folder, 'kc') }, other),
    kc(['serve'], { KC_ROOT: root }, other),
  ])
  for (const { code, stderr } of [made, served]) {
    expect(code).toBeGreaterThan(0)
    expect(stderr).toMatch(/^kc: .*(EACCES|permission denied)/)
    expect(stderr).not.toMatch(/^\s+at /m)
  }
})

test('says loudly what is not contained and what has no effect, and how a client is set up', async () => {
  const { stderr } = await served({ KC_GIT_CREDENTIAL: '/x' })
  expect(stderr()).toContain('KC_GIT_CREDENTIAL is no variable of kc and has no effect')
  expect(stderr()).toContain('WARNING: actions run as this very user')
  expect(stderr()).toContain('"Authorization": "Bearer <token>"')
})

test('a file of git credentials that is not one, or that everybody can read, is refused at the start', async () => {
  const { root } = await computer()
  const file = join(await temporary(), 'credentials')
  const start = () => kc(['serve'], { KC_ROOT: root, KC_GIT_CREDENTIALS: file })
  expect((await start()).stderr).toContain('KC_GIT_CREDENTIALS: ')
  await writeFile(file, 'https://user:sentinel-4711@example.com/with/a/path\n', { mode: 0o600 })
  const wrong = await start()
  expect([wrong.code, wrong.stderr]).toEqual([3, expect.stringContaining(`line 1 of ${file}`)])
  expect(wrong.stderr.includes('sentinel-4711')).toBe(false)
  await chmod(file, 0o644)
  expect((await start()).stderr).toContain('chmod 600')
})

test.skipIf(process.getuid?.() !== 0)(
  'with KC_ACTION_USER an action runs as that user and cannot read the computer',
  async () => {
    const { root, token, url, stderr } = await served({ KC_ACTION_USER: 'nobody' })
    expect(stderr()).not.toContain('run as this very user')
    const { call } = await connect(url, token)
    const tree = (await call('fs', { action: 'empty' })).slice(5)
    const answer = await call('exec', {
      action: 'run',
      tree,
      argv: ['sh', '-c', `id -un; cat ${root}/kc.db >/dev/null || echo kept out; echo made >file`],
    })
    expect(answer).toMatch(/^exit 0/)
    expect(answer).toContain('nobody')
    expect(answer).toContain('kept out')
    expect(answer).toContain('+ file')
  },
)

test('SIGTERM lets the call in flight end; a second one ends at once', async () => {
  const { child, url, token, root } = await served()
  const folder = await temporary()
  const { call } = await connect(url, token)
  const tree = (await call('fs', { action: 'empty' })).slice(5)
  const wait = (name: string) => [
    'sh',
    '-c',
    `touch ${folder}/${name}; until [ -e ${folder}/end ]; do sleep 0.05; done`,
  ]
  const running = call('exec', { action: 'run', tree, argv: wait('first') })
  await appears(join(folder, 'first'))
  child.kill('SIGTERM')
  while ((await fetch(new URL('/healthz', url))).status === 200) await delay(10)
  await writeFile(join(folder, 'end'), '')
  expect(await running).toMatch(/^exit 0/)
  expect(await once(child, 'close')).toEqual([0, null])

  await rm(join(folder, 'end'))
  const again = await serve(root, { KC_DRAIN_SECONDS: '3600' })
  const { call: callAgain } = await connect(again.url, token)
  callAgain('exec', { action: 'run', tree, argv: wait('second') }).catch(() => 'cut off')
  await appears(join(folder, 'second'))
  again.child.kill('SIGTERM')
  while ((await fetch(new URL('/healthz', again.url))).status === 200) await delay(10)
  again.child.kill('SIGTERM')
  expect(await once(again.child, 'close')).toEqual([130, null])
  await writeFile(join(folder, 'end'), '')
})

test('killed with SIGKILL amid writes, it loses no answered call and its store is whole', async () => {
  const { root, token, child, url } = await served()
  const { call } = await connect(url, token)
  let at = (await call('fs', { action: 'empty' })).slice(5)
  await call('ref', { action: 'create', name: 'main', tree: at })
  /** The trees that an answered call moved the ref to. */
  const answered: string[] = []
  const writing = (async () => {
    for (let index = 0; ; index++) {
      const next =
        /[0-9a-f]{64}/.exec(
          await call('fs', { action: 'write', tree: at, path: `f${index}`, content: 'x'.repeat(index) }),
        )?.[0] ?? ''
      await call('ref', { action: 'move', name: 'main', expected_tree: at, new_tree: next })
      at = next
      answered.push(next)
    }
  })().catch(() => 'cut off')
  while (answered.length < 20) await delay(10)
  child.kill('SIGKILL')
  expect(await writing).toBe('cut off')
  expect(await kc(['fsck'], { KC_ROOT: root })).toMatchObject({ code: 0, stdout: expect.stringMatching(/^good/) })
  const again = await serve(root)
  const { call: callAgain } = await connect(again.url, token)
  const history = await callAgain('ref', { action: 'history', name: 'main', limit: 1000 })
  for (const tree of answered) expect(history).toContain(tree)
})
