import { createHash, randomBytes } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { GuestNetwork, MicroVm } from '../src/index.ts'
import { bench, removeFolders, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()

const megabytes = Array.from({ length: 20 }, () => randomBytes(1024 * 1024))
const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

/** Answers every question for an A record below `.test` with one address, and all else with nothing. */
function answer(query: Uint8Array): Uint8Array {
  const bytes = Buffer.from(query)
  const end = bytes.indexOf(0, 12)
  const name = bytes.toString('latin1', 12, end)
  const isA = bytes.readUInt16BE(end + 1) === 1 && name.endsWith('\x04test')
  const head = Buffer.from(bytes.subarray(0, end + 5))
  head.writeUInt16BE(0x8180, 2)
  head.writeUInt16BE(isA ? 1 : 0, 6)
  head.writeUInt32BE(0, 8)
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 1])
  return Buffer.concat([head, isA ? record : Buffer.alloc(0)])
}

type Seen = { readonly target: { readonly address: string; readonly port: number }; readonly guest: Duplex }

/** A network of the test's own: names below `.test` lead to its HTTP server, other connections to what a test sets. */
class TestNetwork implements GuestNetwork {
  readonly ports = [80, 443, 9000]
  readonly certificate = '-----BEGIN CERTIFICATE-----\nof the test\n-----END CERTIFICATE-----\n'
  readonly queries: Uint8Array[] = []
  readonly attempts: string[] = []
  readonly seen: Seen[] = []
  httpPort = 0
  onConnect: ((seen: Seen) => void) | undefined

  dns(query: Uint8Array): Promise<Uint8Array | undefined> {
    this.queries.push(query)
    return Promise.resolve(answer(query))
  }

  connect(target: Seen['target'], guest: Duplex): void {
    const seen = { target, guest }
    this.seen.push(seen)
    if (target.address !== '198.18.0.1') guest.destroy()
    else if (target.port === 80) this.toHttp(guest)
    else if (this.onConnect === undefined) guest.destroy()
    else this.onConnect(seen)
  }

  toHttp(guest: Duplex): void {
    const upstream = connect({ host: '127.0.0.1', port: this.httpPort, allowHalfOpen: true })
    upstream.on('error', () => guest.destroy())
    guest.on('error', () => upstream.destroy())
    guest.on('close', () => upstream.destroy())
    guest.pipe(upstream)
    upstream.pipe(guest)
  }

  denied({ protocol, address, port }: Parameters<GuestNetwork['denied']>[0]): void {
    this.attempts.push(`${protocol} ${address}:${port}`)
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}

const network = new TestNetwork()
const { vm } = bench({ egress: { kind: 'list', hosts: ['files.test'] } }, {}, undefined, { network })
let http: Server

/** Runs Python in the guest. */
async function python(code: string, stdin?: Uint8Array, on: MicroVm = vm): Promise<string> {
  const lines = `import socket, sys, struct, time, threading, errno, hashlib\n${code}`
  const result = await on.exec({ argv: ['python3', '-c', lines], ...(stdin === undefined ? {} : { stdin }) })
  const [out, err] = [result.stdout, result.stderr].map((bytes) => Buffer.from(bytes).toString().trim())
  if (result.exitCode !== 0) throw new Error(err)
  return out ?? ''
}

const listen = (server: Server): Promise<number> =>
  new Promise((done) => server.listen(0, '127.0.0.1', () => done((server.address() as AddressInfo).port)))

beforeAll(async () => {
  http = createServer((request, response) => {
    const index = Number(/^\/mb\/(\d+)$/.exec(request.url ?? '')?.[1] ?? -1)
    if (request.method === 'POST') {
      const hash = createHash('sha256')
      request.on('data', (chunk: Buffer) => hash.update(chunk))
      request.on('end', () => response.end(hash.digest('hex')))
    } else response.end(megabytes[index] ?? `hello ${request.headers.host}`)
  })
  network.httpPort = await listen(http)
})
afterAll(async () => {
  await vm.stop()
  http.close()
  removeFolders()
})

describe.skipIf(why !== undefined)('the network of a guest', () => {
  test('reaches a host by its name, by programs that know nothing of it', async () => {
    expect(await python('import urllib.request as u; print(u.urlopen("http://files.test/").read().decode())')).toBe(
      'hello files.test',
    )
    expect(network.seen.at(-1)?.target).toEqual({ address: '198.18.0.1', port: 80 })
  })

  test('asks names over UDP and TCP, whatever server is asked, and gets no others', async () => {
    const ask = `
q = b'\\x12\\x34\\x01\\x00\\x00\\x01\\0\\0\\0\\0\\0\\0\\x01a\\x04test\\0\\0\\x01\\0\\x01'
for to in ('192.0.2.1', '8.8.8.8'):
  u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20); u.connect((to, 53)); u.send(q)
  print(socket.inet_ntoa(u.recv(512)[-4:]))
  t = socket.create_connection((to, 53)); t.sendall(struct.pack('>H', len(q)) + q + struct.pack('>H', len(q))); t.sendall(q)
  t.shutdown(socket.SHUT_WR); d = b''
  while True:
    b = t.recv(4096)
    if not b: break
    d += b
  print(len(d), socket.inet_ntoa(d[-4:]))
try: socket.getaddrinfo('elsewhere.example', 80)
except socket.gaierror: print('no such name')`
    expect((await python(ask)).split('\n')).toEqual([
      '198.18.0.1',
      '84 198.18.0.1',
      '198.18.0.1',
      '84 198.18.0.1',
      'no such name',
    ])
  })

  test('carries twenty downloads at once, each right', async () => {
    const code = `
import urllib.request as u
r = [None] * 20
def get(i): r[i] = hashlib.sha256(u.urlopen('http://files.test/mb/%d' % i).read()).hexdigest()
t = [threading.Thread(target=get, args=(i,)) for i in range(20)]
[x.start() for x in t]; [x.join() for x in t]
print('\\n'.join(r))`
    expect((await python(code)).split('\n')).toEqual(megabytes.map(digest))
  })

  test('carries 50 MB there and back, while neither side holds more than its window', async () => {
    let most = 0
    network.onConnect = ({ guest }) => {
      guest.on('data', (chunk: Uint8Array) => {
        most = Math.max(most, guest.readableLength + guest.writableLength)
        if (!guest.write(chunk)) {
          guest.pause()
          guest.once('drain', () => guest.resume())
        }
      })
      guest.on('end', () => guest.end())
    }
    const code = `
s = socket.create_connection(('files.test', 9000)); b = bytes(range(256)) * 4096; n = 50
def send():
  for i in range(n): s.sendall(b)
  s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
h = hashlib.sha256(); got = 0
while True:
  d = s.recv(1 << 20)
  if not d: break
  h.update(d); got += len(d)
print(got, h.hexdigest() == hashlib.sha256(b * n).hexdigest())`
    expect(await python(code)).toBe(`${50 * 1024 * 1024} True`)
    expect(most).toBeLessThan(1024 * 1024)
  })

  test('makes a program wait for a reader that is slow, and goes on when it reads', async () => {
    const guests: Duplex[] = []
    network.onConnect = ({ guest }) => void guests.push(guest)
    const code = `
s = socket.create_connection(('files.test', 9000)); s.setblocking(False); sent = 0; last = time.time()
while time.time() - last < 2:
  try: sent += s.send(bytes(65536)); last = time.time()
  except BlockingIOError: time.sleep(0.05)
print(sent, flush=True)
sys.stdin.read()
s.setblocking(True); s.sendall(b'end'); s.close()`
    let printed = ''
    const handle = vm.spawn({
      argv: ['python3', '-c', `import socket, sys, time${code}`],
      onOutput: (_, chunk) => void (printed += Buffer.from(chunk).toString()),
    })
    await until(() => printed.endsWith('\n'), 'the program could send no more')
    const [guest] = guests
    expect(guest?.readableLength).toBeLessThanOrEqual(256 * 1024)
    let received = 0
    guest?.on('data', (chunk: Uint8Array) => (received += chunk.length))
    handle.end()
    await handle.result
    const sent = Number(printed)
    await until(() => received === sent + 3, 'all of it came')
    // What lies in between is of the guest's kernel.
    expect(sent).toBeLessThan(20 * 1024 * 1024)
  })

  test('refuses other ports at once, and says so', async () => {
    const code = `
for a in (('files.test', 22), ('10.1.2.3', 8080)):
  try: socket.create_connection(a, 20); print('connected')
  except OSError as e: print(errno.errorcode[e.errno])`
    expect(await python(code)).toBe('ECONNREFUSED\nECONNREFUSED')
    await until(() => network.attempts.includes('tcp 198.18.0.1:22'), 'the first was reported')
    await until(() => network.attempts.includes('tcp 10.1.2.3:8080'), 'the second was reported')
  })

  test('refuses UDP that is no DNS at once, and says so once', async () => {
    const code = `
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20); u.connect(('9.9.9.9', 123))
for i in range(5):
  try: u.send(b'x'); u.recv(10); print('answered')
  except ConnectionRefusedError: print('refused')`
    expect(await python(code)).toBe('refused\nrefused\nrefused\nrefused\nrefused')
    await until(() => network.attempts.includes('udp 9.9.9.9:123'), 'it was reported')
    expect(network.attempts.filter((attempt) => attempt === 'udp 9.9.9.9:123')).toHaveLength(1)
  })

  test('asks the host about a raw address, which resets it', async () => {
    const code = `
s = socket.create_connection(('8.8.8.8', 443), 20)
try: print(len(s.recv(10)))
except ConnectionResetError: print('reset')`
    expect(await python(code)).toBe('reset')
    expect(network.seen.at(-1)?.target).toEqual({ address: '8.8.8.8', port: 443 })
  })

  test('answers no ping, and has no other way out', async () => {
    const code = `
print(sorted(open('/proc/net/dev').read().split(':')[i].split()[-1] for i in range(2)))
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); s.settimeout(1)
s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('8.8.8.8', 0))
try: s.recv(100); print('answered')
except TimeoutError: print('nothing')
try: socket.socket(socket.AF_INET6, socket.SOCK_STREAM).connect(('2001:db8::1', 443)); print('connected')
except OSError as e: print(errno.errorcode[e.errno])`
    expect((await python(code)).split('\n')).toEqual(["['eth0', 'lo']", 'nothing', 'ENETUNREACH'])
  })

  test('leaves every port of its own to a program of the guest', async () => {
    const code = `
for port in (53, 80, 443, 9000):
  l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(('0.0.0.0', port)); l.listen()
  c = socket.create_connection(('127.0.0.1', port)); p, _ = l.accept(); c.sendall(b'own'); print(p.recv(3).decode())`
    expect(await python(code)).toBe('own\nown\nown\nown')
  })

  test('ends one direction and not the other, either way', async () => {
    network.onConnect = ({ guest }) => {
      let received = 0
      guest.on('data', (chunk: Uint8Array) => (received += chunk.length))
      guest.on('end', () => setTimeout(() => guest.end(`got ${received}`), 200))
    }
    const first = `
s = socket.create_connection(('files.test', 9000)); s.sendall(bytes(100000)); s.shutdown(socket.SHUT_WR)
d = b''
while True:
  b = s.recv(100)
  if not b: break
  d += b
print(d.decode())`
    expect(await python(first)).toBe('got 100000')
    const received = Promise.withResolvers<string>()
    network.onConnect = ({ guest }) => {
      guest.end('that was all')
      let text = ''
      guest.on('data', (chunk: Uint8Array) => (text += Buffer.from(chunk).toString()))
      guest.on('end', () => received.resolve(text))
    }
    const second = `
s = socket.create_connection(('files.test', 9000)); d = b''
while True:
  b = s.recv(100)
  if not b: break
  d += b
print(d.decode()); time.sleep(0.3); s.sendall(b'and still'); s.close()`
    expect(await python(second)).toBe('that was all')
    expect(await received.promise).toBe('and still')
  })

  test('resets from the host and from the guest', async () => {
    network.onConnect = ({ guest }) => guest.once('data', () => guest.destroy())
    const first = `
s = socket.create_connection(('files.test', 9000)); s.sendall(b'x')
try: print(len(s.recv(10)))
except ConnectionResetError: print('reset')`
    expect(await python(first)).toBe('reset')
    const error = Promise.withResolvers<Error>()
    network.onConnect = ({ guest }) => {
      guest.on('error', error.resolve)
      guest.resume()
    }
    await python(`
s = socket.create_connection(('files.test', 9000)); s.sendall(b'x'); time.sleep(0.3)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()`)
    expect(await error.promise).toMatchObject({ code: 'ECONNRESET' })
  })

  test('keeps what a program got before the host closed all, and resets it when it sends more', async () => {
    network.onConnect = ({ guest }) => {
      guest.write(Buffer.alloc(200_000, 'a'))
      guest.end(() => guest.destroy())
    }
    const code = `
s = socket.create_connection(('files.test', 9000)); time.sleep(1); n = 0
while True:
  b = s.recv(65536)
  if not b: break
  n += len(b)
print(n)
try:
  while True: s.sendall(b'x'); time.sleep(0.05)
except (ConnectionResetError, BrokenPipeError): print('reset')`
    expect(await python(code)).toBe('200000\nreset')
  })

  test('serves more connections than it holds at once, one after the other', async () => {
    network.onConnect = ({ guest }) => {
      guest.on('data', () => undefined)
      guest.on('end', () => guest.end('bye'))
    }
    const code = `
done = []
def one():
  s = socket.create_connection(('198.18.0.1', 9000)); time.sleep(0.5); s.shutdown(socket.SHUT_WR); done.append(s.recv(3)); s.close()
t = [threading.Thread(target=one) for i in range(300)]
[x.start() for x in t]; [x.join() for x in t]
print(done.count(b'bye'))`
    expect(await python(code)).toBe('300')
  })

  test('has an authority of its own, that programs trust', async () => {
    const code = `
import os
names = ('SSL_CERT_FILE', 'CURL_CA_BUNDLE', 'GIT_SSL_CAINFO', 'REQUESTS_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS')
for name in names: print(open(os.environ[name]).read().count('of the test'))`
    expect(await python(code)).toBe('1\n1\n1\n1\n1')
  })

  test('is there again after a restart, with the authority once and what stood before it', async () => {
    await vm.exec({
      argv: ['sh', '-c', 'f=/etc/ssl/certs/ca-certificates.crt; { echo first; cat $f; } > /x; cp /x $f'],
    })
    await vm.stop()
    const { stdout } = await vm.exec({ argv: ['cat', '/etc/ssl/certs/ca-certificates.crt'] })
    expect(Buffer.from(stdout).toString()).toBe(`first\n\n# reve\n${network.certificate}`)
    expect(await python('import urllib.request as u; print(u.urlopen("http://files.test/").read().decode())')).toBe(
      'hello files.test',
    )
  })
})
