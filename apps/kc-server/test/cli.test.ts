import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, realpath, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { afterEach, describe, expect, test } from 'vitest'

const main = fileURLToPath(new URL('../src/main.ts', import.meta.url))
if (process.getuid?.() !== 0) process.stderr.write('not root: actions of another user are not tested\n')
const children: ChildProcess[] = []
afterEach(() => children.splice(0).forEach((child) => child.kill('SIGKILL')))

const temporary = async (): Promise<string> => realpath(await mkdtemp(join(tmpdir(), 'kc-cli-')))

type Env = Readonly<Record<string, string>>
function start(
  args: readonly string[],
  env: Env,
): ChildProcess & { readonly stdout: NodeJS.ReadableStream; readonly stderr: NodeJS.ReadableStream } {
  const child = spawn(process.execPath, ['--conditions=@reve/source', main, ...args], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.push(child)
  return child
}

async function kc(
  args: readonly string[],
  env: Env = {},
): Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }> {
  const child = start(args, env)
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (stdout += String(chunk)))
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, stdout, stderr }
}

/** A served computer with one seat. */
async function served(env: Env = {}) {
  const root = join(await temporary(), 'kc')
  await kc(['init'], { KC_ROOT: root })
  const token = (await kc(['seat', 'create', 'me'], { KC_ROOT: root })).stdout.trim()
  return { root, token, ...(await serve(root, env)) }
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
  expect(await kc(['--version'])).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^kc \d+\.\d+\.\d+\n$/),
    stderr: '',
  })
  expect((await kc(['help', 'env'])).stdout).toContain('KC_SEAT_TOKEN')
  expect(await kc(['srve'])).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining('no command "srve"'),
  })
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
    const made = await kc(['seat', 'create', 'late'], { KC_ROOT: root })
    expect(made).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^kc_[\w-]{43}\n$/),
      stderr: expect.stringContaining('shown once'),
    })
    const { client, call } = await connect(url, made.stdout.trim())
    expect(await call('seat', { action: 'whoami' })).toContain('seat late')
    await client.close()
    const list = await kc(['seat', 'list'], { KC_ROOT: root })
    expect(list.stdout).toMatch(/^late .*\nme /)
    expect(list.stdout).not.toContain('kc_')
    expect(await kc(['seat', 'create', 'late'], { KC_ROOT: root })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('rekey'),
    })
    expect(await kc(['seat', 'create', '../x'], { KC_ROOT: root })).toMatchObject({ code: 2 })
    expect(await kc(['seat', 'remove', 'none'], { KC_ROOT: root })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no seat "none"'),
    })
  })

  test('KC_SEAT_TOKEN is the first seat, re-keyed at each start; a weak one is refused', async () => {
    const root = join(await temporary(), 'kc')
    await kc(['init'], { KC_ROOT: root })
    const token = 'a-token-that-the-host-hands-in-0123456789'
    const { url, child } = await serve(root, { KC_SEAT_TOKEN: token })
    const { client, call } = await connect(url, token)
    expect(await call('seat', { action: 'whoami' })).toContain('seat operator')
    await client.close()
    child.kill('SIGTERM')
    await once(child, 'close')
    expect(await kc(['serve', '--port', '0'], { KC_ROOT: root, KC_SEAT_TOKEN: 'short' })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('too weak'),
    })
  })
})

describe('serve refuses', () => {
  test('a folder that holds no computer, with 3', async () => {
    const root = await temporary()
    expect(await kc(['serve'], { KC_ROOT: root })).toMatchObject({
      code: 3,
      stderr: expect.stringMatching(/holds no computer.*kc init/),
    })
    expect(await kc(['seat', 'create', 'x'], { KC_ROOT: root })).toMatchObject({ code: 3 })
    expect(await readdir(root)).toEqual([])
  })

  test('a wrong variable, with 3 and its name', async () => {
    expect(await kc(['serve'], { KC_ROOT: await temporary(), KC_PORT: 'http' })).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('KC_PORT'),
    })
  })

  test('a computer that is served already, with 5 and the process; a port in use, with what to do', async () => {
    const { root, child, url } = await served()
    expect(await kc(['serve', '--port', '0'], { KC_ROOT: root })).toMatchObject({
      code: 5,
      stderr: expect.stringContaining(`${child.pid}`),
    })
    const other = join(await temporary(), 'kc')
    await kc(['init'], { KC_ROOT: other })
    const port = new URL(url).port
    expect(await kc(['serve', '--port', port], { KC_ROOT: other })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(new RegExp(`${port} is in use.*--port`)),
    })
  })
})

test('says loudly what is not contained, and how a client is set up', async () => {
  const { stderr } = await served()
  expect(stderr()).toContain('WARNING: actions run as this very user')
  expect(stderr()).toContain('"Authorization": "Bearer <token>"')
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

test('SIGTERM lets the call in flight end', async () => {
  const { child, url, token } = await served()
  const { call } = await connect(url, token)
  const tree = (await call('fs', { action: 'empty' })).slice(5)
  const running = call('exec', { action: 'run', tree, argv: ['sh', '-c', 'sleep 1; echo finished'] })
  await new Promise((done) => setTimeout(done, 500))
  child.kill('SIGTERM')
  expect(await running).toContain('finished')
  const [code] = (await once(child, 'close')) as [number | null]
  expect(code).toBe(0)
})

test('killed with SIGKILL amid writes, it loses no answered call and its store is whole', async () => {
  const { root, token, child, url } = await served()
  const { call } = await connect(url, token)
  let at = (await call('fs', { action: 'empty' })).slice(5)
  await call('ref', { action: 'create', name: 'main', tree: at })
  let answered = at
  const writing = (async () => {
    for (let index = 0; ; index++) {
      const next =
        /[0-9a-f]{64}/.exec(
          await call('fs', { action: 'write', tree: at, path: `f${index}`, content: 'x'.repeat(index) }),
        )?.[0] ?? ''
      await call('ref', { action: 'move', name: 'main', expected_tree: at, new_tree: next })
      at = next
      answered = next
    }
  })().catch(() => 'cut off')
  await new Promise((done) => setTimeout(done, 1200))
  child.kill('SIGKILL')
  expect(await writing).toBe('cut off')
  expect(await kc(['fsck'], { KC_ROOT: root })).toMatchObject({ code: 0, stdout: expect.stringMatching(/^good/) })
  const again = await serve(root)
  const { call: callAgain } = await connect(again.url, token)
  const history = await callAgain('ref', { action: 'history', name: 'main', limit: 1000 })
  expect(history).toContain(answered)
  expect(history.split('\n').length).toBeGreaterThan(2)
})
