import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, readdirSync, readFileSync, readSync, statSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { networkInterfaces, release } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connectTcp } from '../src/egress/dial.ts'
import type { EgressEvent } from '../src/egress/events.ts'
import { createGateway } from '../src/egress/gateway.ts'
import { createMicroVm, type MicroVm } from '../src/index.ts'
import { closeAll, listen, onClose, PUBLIC, rule, testAuthority } from './egress/support.ts'
import { bench, type Bench, cacheDir, removeFolders, sh, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const hex = (): string => randomBytes(16).toString('hex')
const REAL = `real-${hex()}-value`
const PLACEHOLDER = `held-${hex()}-place`
const OF_THE_HOST = `host-${hex()}-alone`
const startedMs = Date.now()
// Of the environment of whoever runs reve.
process.env['REVE_TEST_OF_THE_HOST'] = OF_THE_HOST

/** What the servers of the host were asked; nothing of a guest may be in it but what was sent to `api.test`. */
const asked: string[] = []
const authorization: (string | undefined)[] = []
const told: EgressEvent[] = []
let httpPort = 0
let udpPort = 0
/** With a list of hosts and a secret. */
let listed: Bench
/** With no network; of another size, and under the same name. */
let closed: Bench

beforeAll(async () => {
  // On all addresses of this machine, as careless development servers are.
  const server = createHttpServer((request, response) => {
    asked.push(`http ${request.headers.host}`)
    response.end('served by the host')
  })
  await new Promise<void>((done) => server.listen(0, '::', done))
  onClose(() => server.close())
  const address = server.address()
  httpPort = typeof address === 'object' ? (address?.port ?? 0) : 0
  const udp = createSocket('udp6').bind(0, '::')
  await once(udp, 'listening')
  udp.on('message', () => asked.push('udp'))
  onClose(() => udp.close())
  udpPort = udp.address().port

  const { certificate, key } = testAuthority.issue('api.test')
  const api = await listen(
    createHttpsServer({ cert: certificate, key }, (request, response) => {
      authorization.push(request.headers.authorization)
      response.end('hello from api.test')
    }),
  )
  const gateway = createGateway({
    allow: ['api.test', 'rebound.test', 'linklocal.test'].map(rule),
    secrets: [{ name: 'TOKEN', placeholder: PLACEHOLDER, value: () => REAL, hosts: ['api.test'] }],
    resolve: (name) =>
      Promise.resolve(name === 'api.test' ? [PUBLIC] : name === 'rebound.test' ? ['127.0.0.1'] : ['169.254.169.254']),
    // Port 80 is that of the server above, on whatever address was let through.
    connect: ({ address: to, port, signal }) =>
      to === PUBLIC
        ? connectTcp({ address: '127.0.0.1', port: api, signal })
        : connectTcp({ address: to, port: port === 80 ? httpPort : port, signal }),
    ca: [testAuthority.certificate],
    onEvent: (event) => told.push(event),
  })
  onClose(() => gateway.close())
  listed = bench(
    {
      name: 'promises',
      env: { TOKEN: PLACEHOLDER },
      egress: { kind: 'list', hosts: ['api.test', 'rebound.test', 'linklocal.test'] },
    },
    {},
    undefined,
    { network: gateway },
  )
  closed = bench({ name: 'promises', cpus: 1, memoryMiB: 400, diskMiB: 2048 })
  if (why === undefined) await Promise.all([listed.vm.start(), closed.vm.start()])
})
afterAll(async () => {
  await Promise.all([listed.vm.stop(), closed.vm.stop()])
  await closeAll()
  removeFolders()
})

async function python(vm: MicroVm, code: string): Promise<string> {
  const { stdout, stderr } = await vm.exec({ argv: ['python3', '-c', code] })
  return Buffer.concat([stdout, stderr]).toString().trim()
}

/** Whether a stream of pieces holds one of the texts; the last bytes of a piece are looked at with the next one. */
function finder(texts: readonly string[]): {
  readonly look: (piece: Buffer) => void
  readonly found: () => readonly string[]
} {
  const found = new Set<string>()
  let tail = Buffer.alloc(0)
  return {
    look: (piece) => {
      const whole = Buffer.concat([tail, piece])
      for (const text of texts) if (whole.includes(text)) found.add(text)
      tail = whole.subarray(-64)
    },
    found: () => [...found],
  }
}

function inFile(path: string, texts: readonly string[]): readonly string[] {
  const { look, found } = finder(texts)
  const file = openSync(path, 'r')
  const piece = Buffer.alloc(4 * 1024 * 1024)
  for (let got = readSync(file, piece); got > 0; got = readSync(file, piece)) look(piece.subarray(0, got))
  closeSync(file)
  return found()
}

/** Every regular file below a folder. */
const filesBelow = (folder: string): readonly string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))

/** What /proc says of a process; nothing when it has ended or is not ours to see. */
function ofProcess(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1')
  } catch (error) {
    if (error instanceof Error) return ''
    throw error
  }
}
const pids = (): readonly string[] => readdirSync('/proc').filter((name) => /^\d+$/.test(name))

/** The processes that run the VM of a bench: QEMU itself, and the box around it. */
const qemuOf = (of: Bench): readonly string[] =>
  pids().filter((pid) => ofProcess(pid, 'cmdline').includes(of.spec.stateDir))

/** All memory of a process that can be read, guest memory included. */
function inMemory(pid: string, texts: readonly string[]): readonly string[] {
  const { look, found } = finder(texts)
  const memory = openSync(`/proc/${pid}/mem`, 'r')
  const piece = Buffer.alloc(4 * 1024 * 1024)
  for (const line of ofProcess(pid, 'maps').split('\n')) {
    const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) r/.exec(line) ?? []
    if (from === undefined || to === undefined || line.includes('[v')) continue
    const end = Number.parseInt(to, 16)
    for (let at = Number.parseInt(from, 16); at < end;) {
      let got = 0
      try {
        got = readSync(memory, piece, 0, Math.min(piece.length, end - at), at)
      } catch (error) {
        // A part that is only reserved, or a device's.
        if (!(error instanceof Error)) throw error
      }
      look(piece.subarray(0, got))
      at += got === 0 ? piece.length : got
    }
  }
  closeSync(memory)
  return found()
}

describe.skipIf(why !== undefined)('promise 1: of the host there is the workspace', () => {
  test('no path leads to a file of the host, and /proc is of the guest', async () => {
    const marker = join(listed.root, 'of-the-host')
    writeFileSync(marker, OF_THE_HOST)
    const { vm } = listed
    const ways = [
      marker,
      `/proc/1/root${marker}`,
      `/proc/self/cwd/../../..${marker}`,
      `/workspace/..${marker}`,
      '../of-the-host',
    ]
    for (const way of ways) expect(await sh(vm, `cat ${way}`)).toMatchObject({ code: 1, out: '' })
    const { out } = await sh(
      vm,
      'uname -r; hostname; cat /proc/sys/kernel/random/boot_id; cat /proc/[0-9]*/cmdline | tr "\\0" " "',
    )
    const [kernel, name, boot, processes] = out.split('\n')
    expect([kernel === release(), name]).toEqual([false, 'reve'])
    expect(boot).not.toBe(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim())
    expect(processes).not.toMatch(/vitest|qemu/)
  })

  test('one disk, one share: there is nothing else to mount, and the share has no other root', async () => {
    const { vm } = closed
    const { out } = await sh(
      vm,
      'cut -d" " -f1,2 /proc/mounts; tail -n +3 /proc/partitions | tr -s " " | cut -d" " -f5',
    )
    expect(out.split('\n')).toEqual([
      ...['devtmpfs /dev', 'proc /proc', 'sysfs /sys', 'devpts /dev/pts', 'tmpfs /dev/shm', 'tmpfs /run'],
      ...['cgroup2 /sys/fs/cgroup', '/dev/vda /', 'share0 /workspace', 'vda', ''],
    ])
    writeFileSync(join(closed.workspace, 'inside'), 'x')
    writeFileSync(join(closed.root, 'beside'), 'x')
    const again = (options: string, tag = 'share0'): string =>
      `mount -t 9p -o trans=virtio,version=9p2000.L${options} ${tag} /mnt && { ls /mnt; umount /mnt; }`
    for (const tag of ['share1', 'host', '/', 'root']) expect((await sh(vm, again('', tag))).code).not.toBe(0)
    await sh(vm, 'umount /workspace', { cwd: '/' })
    for (const aname of ['/', '..', '/../..', closed.root, '/etc'])
      expect((await sh(vm, again(`,aname=${aname}`), { cwd: '/' })).out).toMatch(/^(inside\n)?$/)
    expect((await sh(vm, again(''), { cwd: '/' })).out).toBe('inside\n')
  })

  test('nothing of the environment of whoever started it', async () => {
    const { out } = await sh(listed.vm, 'env; cat /proc/[0-9]*/environ | tr "\\0" "\\n"')
    expect(out).toContain(`TOKEN=${PLACEHOLDER}`)
    expect(out).not.toContain(OF_THE_HOST)
    for (const pid of qemuOf(listed)) expect(ofProcess(pid, 'environ')).not.toContain(OF_THE_HOST)
  })
})

describe.skipIf(why !== undefined)('promise 2: no host but the listed ones', () => {
  /** Every address by which this machine may be known to a guest. */
  const ways = (): readonly string[] => [
    ...['127.0.0.1', '127.1.2.3', '0.0.0.0', 'localhost', '10.0.2.2', '10.0.2.3', '10.0.2.15', '192.168.122.1'],
    ...['172.17.0.1', '192.0.2.1', '198.18.0.1', '198.19.255.254', '100.64.0.1', '224.0.0.1', '255.255.255.255'],
    ...['169.254.169.254', '::1', '::ffff:127.0.0.1', '::ffff:169.254.169.254', 'fe80::1', 'fd00:ec2::254'],
    ...['host.docker.internal', 'metadata.google.internal', 'rebound.test', 'linklocal.test'],
    ...Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address)),
  ]
  const script = (): string => `
import socket
ways, ports, udp = ${JSON.stringify(ways())}, (80, 443, ${httpPort}), ${udpPort}
for way in ways:
  for port in ports:
    try:
      s = socket.create_connection((way, port), 10); s.settimeout(10)
      s.sendall(b'GET / HTTP/1.1\\r\\nHost: ' + way.encode() + b'\\r\\nConnection: close\\r\\n\\r\\n')
      d = b''
      while True:
        b = s.recv(4096)
        if not b: break
        d += b
      if b'served by the host' in d: print('reached', way, port)
    except OSError: pass
  try: family, _, _, _, to = socket.getaddrinfo(way, udp, type=socket.SOCK_DGRAM)[0]
  except OSError: continue
  s = socket.socket(family, socket.SOCK_DGRAM)
  try: s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b'x', to)
  except OSError: pass
print('tried', len(ways))`

  test('with a list: neither this machine nor a metadata service, by any address, name or port', async () => {
    expect(await python(listed.vm, script())).toBe(`tried ${ways().length}`)
    expect(asked).toEqual([])
    for (const host of ['rebound.test', 'linklocal.test'])
      expect(told).toContainEqual(expect.objectContaining({ type: 'denied', reason: 'private_address', host }))
    expect(told).toContainEqual(
      expect.objectContaining({ type: 'denied', host: '169.254.169.254', line: '"169.254.169.254:80",' }),
    )
  })

  test('without one: nothing at all', async () => {
    expect(await python(closed.vm, script())).toBe(`tried ${ways().length}`)
    expect(asked).toEqual([])
  })

  test('the servers were there to be reached', async () => {
    expect(await (await fetch(`http://127.0.0.1:${httpPort}/`)).text()).toBe('served by the host')
    const socket = createSocket('udp4')
    socket.send('x', udpPort, '127.0.0.1')
    await until(() => asked.includes('udp'), 'a datagram arrives')
    socket.close()
  })
})

describe.skipIf(why !== undefined)('promise 6: two at once do not meet', () => {
  test('by a network, a socket of the hypervisor or a port', async () => {
    const serving = listed.vm.spawn({
      argv: [
        'python3',
        '-c',
        "import socket; s = socket.create_server(('0.0.0.0', 80)); print(flush=True); s.accept()",
      ],
    })
    const addresses = (await sh(listed.vm, 'grep -oE "[0-9]+(\\.[0-9]+){3}" /proc/net/fib_trie | sort -u')).out.trim()
    const tries = `
import socket
for way in ${JSON.stringify(addresses.split('\n'))}:
  try: socket.create_connection((way, 80), 5); print('met')
  except OSError: pass
for cid in (0, 1, 2, 3, 4):
  try: s = socket.socket(socket.AF_VSOCK); s.settimeout(5); s.connect((cid, 1024)); print('met')
  except OSError: pass
print('over')`
    expect(addresses).toContain('127.0.0.1')
    expect(await python(closed.vm, tries)).toBe('over')
    const ports = 'ls /sys/class/virtio-ports; cat /sys/class/virtio-ports/*/name'
    expect((await sh(closed.vm, ports)).out).toBe((await sh(listed.vm, ports)).out)
    serving.kill('SIGKILL')
    expect((await serving.result).exitCode).toBe(137)
  })

  test('in their files, names, numbers and chance', async () => {
    await Promise.all([listed, closed].map(({ vm }, index) => sh(vm, `echo ${index} | tee /root/who > /workspace/who`)))
    const both = await Promise.all(
      [listed, closed].map(({ vm }) =>
        sh(vm, 'cat /root/who /workspace/who; cat /proc/sys/kernel/random/uuid; head -c 32 /dev/urandom | od -An -tx1'),
      ),
    )
    expect(both.map(({ out }) => out.split('\n').slice(0, 2))).toEqual([
      ['0', '0'],
      ['1', '1'],
    ])
    const [one = [], two = []] = both.map(({ out }) => out.split('\n').slice(2))
    for (const [line, text] of one.entries()) if (text !== '') expect(two[line]).not.toBe(text)
  })
})

describe.skipIf(why !== undefined)('promises 7 and 8: its size, its time, its language', () => {
  test('are those of the spec and sane', async () => {
    const { out } = await sh(
      closed.vm,
      'nproc; sed -n "s/^MemTotal: *\\([0-9]*\\) kB/\\1/p" /proc/meminfo; df -m / | tail -1 | tr -s " " | cut -d" " -f2; cat /sys/fs/cgroup/reve/pids.max; date +%Z; echo ü | wc -m; date +%s',
    )
    const [cpus, memory, disk, processes, zone, characters, seconds] = out.split('\n')
    expect([cpus, zone, characters]).toEqual(['1', 'UTC', '2'])
    expect(Number(processes)).toBeGreaterThanOrEqual(256)
    expect(Number(processes)).toBeLessThanOrEqual(4096)
    expect(Number(memory) / 1024).toBeGreaterThan(300)
    expect(Number(memory) / 1024).toBeLessThanOrEqual(400)
    expect(Number(disk)).toBeGreaterThan(1700)
    expect(Number(disk)).toBeLessThanOrEqual(2048)
    expect(Math.abs(Number(seconds) - Date.now() / 1000)).toBeLessThan(30)
  })
})

/** Whether a process may look into another one that it started: root may, others where ptrace is not restricted. */
const memoryIsReadable = ((): boolean => {
  const child = spawn('sleep', ['60'], { stdio: 'ignore' })
  try {
    closeSync(openSync(`/proc/${child.pid}/mem`, 'r'))
    return true
  } catch (error) {
    if (!(error instanceof Error)) throw error
    process.stderr.write(`the memory of QEMU is not looked through here: ${error.message}\n`)
    return false
  } finally {
    child.kill()
  }
})()

describe.skipIf(why !== undefined)('promise 3: the real value of a secret', () => {
  const use = `
import os, ssl, urllib.request as u
r = u.Request('https://api.test/', headers={'authorization': 'Bearer ' + os.environ['TOKEN']})
print(u.urlopen(r).read().decode())`

  test('reaches its host, and is in no process, file or core dump of the guest', async () => {
    expect(await python(listed.vm, use)).toBe('hello from api.test')
    expect(authorization).toEqual([`Bearer ${REAL}`])
    // The pattern is not a match of itself, so the search does not find itself.
    const { out } = await sh(
      listed.vm,
      `cd /root; ulimit -c unlimited; echo core > /proc/sys/kernel/core_pattern
python3 -c 'import os; held = os.environ["TOKEN"]; os.abort()'
p='real-[0-9a-f]{32}-value'; h='held-[0-9a-f]{32}-place'
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -acE "$p"
grep -cE "$p" core*; grep -lE "$h" core*
grep -rlsE "$p" /etc /root /tmp /var /run /dev/shm /workspace /usr/local | wc -l`,
    )
    expect(out.split('\n')).toEqual(['0', '0', 'core', '0', ''])
  })

  test.skipIf(!memoryIsReadable)('is nowhere in the memory of the machine, which holds the placeholder', () => {
    const processes = qemuOf(listed)
    expect(processes.length).toBeGreaterThan(0)
    const found = processes.flatMap((pid) => inMemory(pid, [REAL, PLACEHOLDER, OF_THE_HOST]))
    expect(new Set(found)).toEqual(new Set([PLACEHOLDER]))
  })

  test('is in no list of processes of this machine, and in no event', () => {
    for (const pid of pids())
      for (const file of ['cmdline', 'environ']) expect(ofProcess(pid, file)).not.toContain(REAL)
    expect(JSON.stringify([told, listed.events])).not.toContain(REAL)
    expect(JSON.stringify(told)).toContain('api.test')
  })

  test('is on no disk after the stop; what was written is, and is there after a cold start', async () => {
    const kept = `kept-${hex()}-whole`
    await sh(listed.vm, `echo ${kept} > /root/kept`)
    await listed.vm.stop()
    const templates = join(cacheDir, 'templates')
    const files = [...filesBelow(listed.root), ...(existsSync(templates) ? filesBelow(templates) : [])]
    const found = files
      .filter((path) => existsSync(path) && statSync(path).mtimeMs >= startedMs)
      .map((path) => [path, inFile(path, [REAL, kept])] as const)
    expect(found.filter(([, texts]) => texts.includes(REAL))).toEqual([])
    expect(found.filter(([, texts]) => texts.includes(kept)).map(([path]) => path)).toEqual([
      expect.stringMatching(/\.qcow2$/),
    ])
    const cold = createMicroVm(
      { ...listed.spec, egress: { kind: 'none' } },
      { ...listed.host, warmStart: false },
      { backend: 'qemu' },
    )
    expect((await sh(cold, 'cat /root/kept')).out).toBe(`${kept}\n`)
    await cold.stop()
  })
})
