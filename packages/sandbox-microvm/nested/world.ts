import { createSocket } from 'node:dgram'
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { randomBytes } from 'node:crypto'
import { spawnSync } from 'node:child_process'
import { createServer as createHttp, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer as createHttps } from 'node:https'
import { createAuthority } from '../src/egress/authority.ts'

/** What a server of the test's own was asked. */
export type Seen = { readonly host: string; readonly tls: boolean; readonly headers: IncomingMessage['headers'] }

/** Names and where they lead: addresses that are public, and are here the machine's own. */
export const NAMES: Readonly<Record<string, string>> = {
  'a.example': '93.184.215.1',
  'b.example': '93.184.215.2',
  'c.example': '93.184.215.3',
  'x.c.example': '93.184.215.3',
  'unlisted.example': '93.184.215.4',
  'private.example': '10.0.2.15',
}

/** Set up with the static busybox, since this machine has no other tool for it. */
function ip(...args: readonly string[]): void {
  const run = spawnSync('/srv/busybox', ['ip', ...args], { encoding: 'utf8' })
  // Who looks into this machine by hand may have set it up.
  if (run.status !== 0 && !run.stderr.includes('File exists')) throw new Error(`ip ${args.join(' ')}: ${run.stderr}`)
}

/** An internet of this machine's own: addresses, a resolver, servers for HTTP and HTTPS, an authority that is trusted. */
export async function makeWorld(): Promise<{ readonly seen: Seen[]; readonly authority: string }> {
  ip('link', 'set', 'eth0', 'up')
  ip('addr', 'add', '10.0.2.15/24', 'dev', 'eth0')
  ip('route', 'add', 'default', 'via', '10.0.2.2')
  for (const address of new Set(Object.values(NAMES)))
    if (address.startsWith('93.')) ip('addr', 'add', `${address}/32`, 'dev', 'lo')
  const resolver = createSocket('udp4')
  resolver.on('message', (query, from) => resolver.send(answer(query), from.port, from.address))
  await new Promise<void>((done) => resolver.bind(53, '127.0.0.1', done))
  writeFileSync('/etc/resolv.conf', 'nameserver 127.0.0.1\n')

  const authority = createAuthority({ name: 'nested test', now: Date.now, randomBytes })
  mkdirSync('/etc/ssl/certs', { recursive: true })
  appendFileSync('/etc/ssl/certs/ca-certificates.crt', authority.certificate)
  const seen: Seen[] = []
  const serve =
    (tls: boolean): RequestListener =>
    (request, response) => {
      seen.push({ host: request.headers.host ?? '', tls, headers: request.headers })
      response.end('served')
    }
  const datagrams = createSocket('udp4')
  datagrams.on('message', () => seen.push({ host: 'by UDP', tls: false, headers: {} }))
  await new Promise<void>((done) => datagrams.bind(9999, done))
  const contexts = new Map(Object.keys(NAMES).map((name) => [name, authority.contextFor(name)]))
  const secure = createHttps(
    { ...pem(authority.issue('a.example')), SNICallback: (name, done) => done(null, contexts.get(name)) },
    serve(true),
  )
  await Promise.all([
    new Promise<void>((done) => createHttp(serve(false)).listen(80, done)),
    new Promise<void>((done) => createHttp(serve(false)).listen(8080, done)),
    new Promise<void>((done) => secure.listen(443, done)),
  ])
  return { seen, authority: authority.certificate }
}

const pem = ({ certificate, key }: { readonly certificate: string; readonly key: string }) => ({
  cert: certificate,
  key,
})

/** Answers a question for an address of a known name; every other one has none. */
function answer(query: Buffer): Buffer {
  const labels: string[] = []
  let at = 12
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  const address = NAMES[labels.join('.').toLowerCase()]
  const isFound = address !== undefined && query.readUInt16BE(at + 1) === 1
  const head = Buffer.from(query.subarray(0, at + 5))
  head.writeUInt16BE(address === undefined ? 0x8183 : 0x8180, 2)
  head.writeUInt16BE(isFound ? 1 : 0, 6)
  head.fill(0, 8, 12)
  if (!isFound) return head
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4])
  return Buffer.concat([head, record, Buffer.from(address.split('.').map(Number))])
}

/** Every file below the paths that holds `text`, and every process that shows it. */
export function placesOf(text: string, paths: readonly string[]): readonly string[] {
  const files = spawnSync('grep', ['-rlaF', '--', text, ...paths], { encoding: 'utf8' }).stdout
  const processes = spawnSync('sh', ['-c', 'grep -laF -- "$0" /proc/[0-9]*/environ /proc/[0-9]*/cmdline', text], {
    encoding: 'utf8',
  }).stdout
  // The ones that look have it in their own arguments.
  return `${files}${processes}`.split('\n').filter((line) => line !== '' && !isGone(line))
}

function isGone(path: string): boolean {
  const pid = /^\/proc\/(\d+)\//.exec(path)?.[1]
  if (pid === undefined) return false
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('grep')
  } catch (error) {
    if (error instanceof Error) return true
    throw error
  }
}
