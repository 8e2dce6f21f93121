import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { DEFAULT_SEARCH_PATH } from '../src/host-process.ts'
import { boxWorks } from '../src/qemu/box.ts'
import { bench, folder, removeFolders, sh, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const boxed = await boxWorks(DEFAULT_SEARCH_PATH)
if (!boxed) process.stderr.write('bubblewrap makes no namespaces here: what its filter keeps out is not tested\n')
const readonly = folder()
const outside = folder()
writeFileSync(join(readonly, 'given'), 'given')
writeFileSync(join(outside, 'secret'), 'of the host')
const root = folder()
const { vm, workspace } = bench(
  {
    mounts: [
      { host: join(root, 'workspace'), guest: '/workspace' },
      { host: readonly, guest: '/mnt/read only', readonly: true },
    ],
  },
  {},
  (mkdirSync(join(root, 'workspace')), root),
)
const at = (name: string): string => join(workspace, name)
afterAll(async () => {
  await vm.stop()
  removeFolders()
})

describe.skipIf(why !== undefined)('the workspace', () => {
  test('shows each side what the other does, at once', async () => {
    writeFileSync(at('from-host'), 'one')
    expect((await sh(vm, 'cat from-host')).out).toBe('one')
    writeFileSync(at('from-host'), 'two, and longer')
    expect((await sh(vm, 'cat from-host; wc -c < from-host')).out).toBe('two, and longer15\n')
    await sh(vm, 'printf abc > from-guest; printf def >> from-guest')
    expect(readFileSync(at('from-guest'), 'utf8')).toBe('abcdef')
    rmSync(at('from-guest'))
    expect((await sh(vm, 'test -e from-guest')).code).toBe(1)
    renameSync(at('from-host'), at('renamed'))
    expect((await sh(vm, 'ls')).out).toBe('renamed\n')
    await sh(vm, 'mv renamed again && mkdir -p a/b && ln again a/b/hard')
    expect(statSync(at('again')).ino).toBe(statSync(at('a/b/hard')).ino)
    await sh(vm, 'rm -r a again')
    expect(readdirSync(workspace)).toEqual([])
  })

  test('shows a running command what the host does meanwhile', async () => {
    const started = Promise.withResolvers<void>()
    const running = sh(vm, 'echo waiting; while [ ! -e now ]; do sleep 0.05; done; cat now', {
      timeoutMs: 30_000,
      onOutput: () => started.resolve(),
    })
    await started.promise
    writeFileSync(at('now.part'), 'arrived')
    renameSync(at('now.part'), at('now'))
    expect((await running).out).toBe('waiting\narrived')
    rmSync(at('now'))
  })

  test('keeps modes and links', async () => {
    await sh(
      vm,
      'echo "#!/bin/sh" > run; chmod 755 run; echo x > private; chmod 600 private; ln -s run link; ln -s /etc/passwd away; ln -s nowhere dangling',
    )
    expect(['run', 'private'].map((name) => (statSync(at(name)).mode & 0o777).toString(8))).toEqual(['755', '600'])
    expect(['link', 'away', 'dangling'].map((name) => readlinkSync(at(name)))).toEqual([
      'run',
      '/etc/passwd',
      'nowhere',
    ])
    chmodSync(at('run'), 0o640)
    expect((await sh(vm, 'stat -c %a run')).out).toBe('640\n')
    await sh(vm, 'rm run private link away dangling')
  })

  test('keeps names of all kinds', async () => {
    await sh(vm, 'touch "ünïcödé 文" "with\nnewline" -- "-dash"; touch "$(printf "caf\\351")"')
    const names = readdirSync(workspace, { encoding: 'buffer' }).map((name) => Buffer.from(name).toString('latin1'))
    const expected = ['-dash', Buffer.from('ünïcödé 文').toString('latin1'), 'caf\u00e9', 'with\nnewline']
    expect(names.toSorted()).toEqual(expected.toSorted())
    writeFileSync(Buffer.concat([Buffer.from(`${workspace}/`), Buffer.from('b\xff', 'latin1')]), 'x')
    expect((await sh(vm, 'cat "$(printf "b\\377")"')).out).toBe('x')
    await sh(vm, 'find . -mindepth 1 -delete')
  })

  test('carries what programs need: git, unlinked files, shared maps, locks', async () => {
    const { code, err } = await sh(
      vm,
      `set -e
git init -q . && git config user.email a@b && git config user.name n
echo x > tracked && git add . && git commit -qm first && git status --porcelain
python3 - <<'PY'
import fcntl, mmap, os
f = open('map', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[0:4] = b'live'; m.flush()
fcntl.flock(f, fcntl.LOCK_EX)
g = open('gone', 'w+'); os.unlink('gone'); g.write('still'); g.seek(0); assert g.read() == 'still'
PY`,
    )
    expect([code, err]).toEqual([0, ''])
    expect(readFileSync(at('map')).toString('latin1', 0, 4)).toBe('live')
    await sh(vm, 'find . -mindepth 1 -delete')
  })

  test('is the only folder of the host: no path, link or device leads out', async () => {
    symlinkSync(join(outside, 'secret'), at('link-out'))
    symlinkSync('..', at('up'))
    expect((await sh(vm, 'cat link-out')).code).toBe(1)
    expect((await sh(vm, 'ls up/')).out).toContain('etc')
    expect((await sh(vm, `cat ${outside}/secret; cat ../${outside}/secret`)).out).toBe('')
    // A link that the guest makes is a link of its own world.
    await sh(vm, `ln -s ${outside} out; ls out/`)
    expect(lstatSync(at('out')).isSymbolicLink()).toBe(true)
    expect((await sh(vm, 'cat out/secret')).code).toBe(1)
    for (const device of ['mknod disk b 254 0', 'mknod null c 1 3'])
      expect((await sh(vm, device)).err).toContain('Operation not permitted')
    expect((await sh(vm, 'chown 1234:1234 . 2>&1 || echo refused')).out).toContain('refused')
    expect(statSync(workspace).uid).toBe(process.getuid?.())
    await sh(vm, 'find . -mindepth 1 -delete')
    expect(readdirSync(workspace)).toEqual([])
  })

  test.skipIf(!boxed)('takes no setuid file: the host would run it as its owner', async () => {
    await sh(vm, 'cp /bin/true tool; chmod 4755 tool; chmod u+s tool; install -m 4755 /bin/true other; chmod 755 tool')
    expect(
      ['tool', 'other'].filter((name) => existsSync(at(name)) && (statSync(at(name)).mode & 0o4000) !== 0),
    ).toEqual([])
    expect((statSync(at('tool')).mode & 0o777).toString(8)).toBe('755')
    await sh(vm, 'find . -mindepth 1 -delete')
  })

  test('beside a share that is read only: it stays as it is', async () => {
    expect((await sh(vm, 'cat "/mnt/read only/given"')).out).toBe('given')
    expect((await sh(vm, 'echo x > "/mnt/read only/new"')).code).not.toBe(0)
    expect((await sh(vm, 'mount -o remount,rw "/mnt/read only"; echo x > "/mnt/read only/new"')).code).not.toBe(0)
    expect(readdirSync(readonly)).toEqual(['given'])
  })
})

describe.skipIf(why !== undefined)('the network', () => {
  test('is not there: no interface but the loopback', async () => {
    expect((await sh(vm, 'ls /sys/class/net; cat /etc/resolv.conf')).out).toBe('lo\n')
    expect(
      (await sh(vm, 'ls /sys/bus/pci/devices | while read d; do cat /sys/bus/pci/devices/$d/class; done')).out,
    ).not.toMatch(/^0x02/m)
  })

  test('reaches no host, no gateway, no name', async () => {
    const attempt = (host: string): string => `python3 -c 'import socket
socket.setdefaulttimeout(5)
try:
  socket.create_connection(("${host}", 80)); print("reached")
except OSError as error:
  print(type(error).__name__, error.errno)'`
    // 10.0.2.2 is the host in QEMU's own network, which is not there; the last two are metadata and the open internet.
    for (const host of ['10.0.2.2', '169.254.169.254', '192.0.2.1'])
      expect((await sh(vm, attempt(host))).out).toBe('OSError 101\n')
    expect((await sh(vm, attempt('example.org'))).out).toMatch(/^gaierror/)
  })

  test('has a loopback of its own, and the one of the host is not it', async () => {
    const { createServer } = await import('node:net')
    const server = createServer().listen(0, '127.0.0.1')
    await new Promise((done) => server.once('listening', done))
    const address = server.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    const { out } = await sh(
      vm,
      `python3 -c 'import socket
a = socket.create_server(("127.0.0.1", 7)); socket.create_connection(("127.0.0.1", 7)); print("own")
try: socket.create_connection(("127.0.0.1", ${port})); print("reached")
except ConnectionRefusedError: print("refused")'`,
    )
    server.close()
    expect(out).toBe('own\nrefused\n')
  })
})
