import { connect } from 'node:net'
import { createServer } from 'node:https'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { EgressEvent } from '../src/egress/events.ts'
import { createGateway } from '../src/egress/gateway.ts'
import { gitCredentialEnv } from '../src/git-credentials.ts'
import type { MicroVm } from '../src/index.ts'
import { closeAll, listen, onClose, PUBLIC, rule, testAuthority } from './egress/support.ts'
import { bench, removeFolders, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const REAL = 'real-value-0123456789'
const events: EgressEvent[] = []
const seen: (string | undefined)[] = []
let vm: MicroVm

beforeAll(async () => {
  const serve = (name: string) => {
    const identity = testAuthority.issue(name)
    return listen(
      createServer({ cert: identity.certificate, key: identity.key }, (request, response) => {
        seen.push(request.headers.authorization)
        // Git sends what it has only when it is asked.
        if (request.url?.includes('info/refs') === true && request.headers.authorization === undefined)
          response.writeHead(401, { 'www-authenticate': 'Basic realm="test"' })
        response.end(`hello from ${name}`)
      }),
    )
  }
  const ports: Readonly<Record<string, number>> = {
    'api.test': await serve('api.test'),
    'other.test': await serve('other.test'),
  }
  const gateway = createGateway({
    allow: ['api.test', 'other.test'].map(rule),
    secrets: [
      {
        name: 'TOKEN',
        placeholder: 'reve-token',
        value: () => REAL,
        hosts: ['api.test'],
        inBody: false,
        inQuery: false,
      },
    ],
    // Each name has an address of its own, which leads to its server here.
    resolve: (name) => Promise.resolve([name === 'api.test' ? PUBLIC : '93.184.215.15']),
    connect: ({ address }) =>
      new Promise((resolve, reject) => {
        const socket = connect({
          host: '127.0.0.1',
          port: ports[address === PUBLIC ? 'api.test' : 'other.test'] ?? 0,
          allowHalfOpen: true,
        })
        socket.once('connect', () => resolve(socket)).once('error', reject)
      }),
    ca: [testAuthority.certificate],
    onEvent: (event) => events.push(event),
  })
  onClose(() => gateway.close())
  vm = bench(
    {
      egress: { kind: 'list', hosts: ['api.test', 'other.test'] },
      env: {
        TOKEN: 'reve-token',
        ...gitCredentialEnv([{ env: 'TOKEN', source: 'TOKEN', hosts: ['api.test'], body: false, query: false }]),
      },
    },
    {},
    undefined,
    { network: gateway },
  ).vm
})
afterAll(async () => {
  await vm.stop()
  await closeAll()
  removeFolders()
})

const python = async (code: string): Promise<string> => {
  const { stdout, stderr } = await vm.exec({
    argv: ['python3', '-c', `import os, ssl, socket, urllib.request as u\n${code}`],
  })
  return Buffer.concat([stdout, stderr]).toString().trim()
}

describe.skipIf(why !== undefined)('a guest behind the gateway', () => {
  test('uses a secret that it does not have, at its own host, by a program that knows nothing of it', async () => {
    const said = await python(
      'r = u.Request("https://api.test/", headers={"authorization": "Bearer " + os.environ["TOKEN"]})\nprint(u.urlopen(r).read().decode())',
    )
    expect([said, seen.at(-1)]).toEqual(['hello from api.test', `Bearer ${REAL}`])
    const git = await vm.exec({ argv: ['git', 'ls-remote', 'https://user:reve-token@api.test/repository'] })
    expect(Buffer.from(git.stderr).toString()).not.toContain('certificate')
    expect(seen).toContain(`Basic ${Buffer.from(`user:${REAL}`).toString('base64')}`)
    const everything = await vm.exec({
      argv: ['sh', '-c', 'env; cat /proc/*/environ; grep -rs real-value /etc /tmp /run /root'],
    })
    expect(Buffer.from(everything.stdout).toString()).not.toContain(REAL)
  })

  test('git answers a host of a secret by itself, with the placeholder, and no other host', async () => {
    seen.length = 0
    await vm.exec({ argv: ['git', 'ls-remote', 'https://api.test/repository'], env: { GIT_TERMINAL_PROMPT: '0' } })
    expect(seen).toContain(`Basic ${Buffer.from(`x-access-token:${REAL}`).toString('base64')}`)
    seen.length = 0
    const other = await vm.exec({
      argv: ['git', '-c', 'http.sslVerify=false', 'ls-remote', 'https://other.test/repository'],
      env: { GIT_TERMINAL_PROMPT: '0' },
    })
    expect(Buffer.from(other.stderr).toString()).toContain('terminal prompts disabled')
    expect(seen.filter((value) => value !== undefined)).toEqual([])
  })

  test('sees the own certificate of a host without secrets, and its placeholder goes out as it is', async () => {
    const said = await python(`
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
r = u.Request('https://other.test/', headers={'authorization': 'Bearer ' + os.environ['TOKEN']})
print(u.urlopen(r, context=c).read().decode())
try: u.urlopen('https://other.test/')
except Exception as e: print('CERTIFICATE_VERIFY_FAILED' in str(e))`)
    expect([said, seen.at(-1)]).toEqual(['hello from other.test\nTrue', 'Bearer reve-token'])
  })

  test('reaches nothing else, which is told with the line to add', async () => {
    expect(await python('try: u.urlopen("https://elsewhere.test/")\nexcept Exception as e: print(e)')).toContain(
      'Name or service not known',
    )
    await until(() => events.some((event) => JSON.stringify(event).includes('elsewhere.test')), 'it was told')
    expect(
      await python('try: socket.create_connection(("api.test", 8443), 20)\nexcept OSError as e: print(e)'),
    ).toContain('refused')
    await until(() => events.some((event) => JSON.stringify(event).includes('8443')), 'it was told')
  })
})
