import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { prepareImage } from '../../src/index.ts'
import { DEFAULT_SEARCH_PATH, runHost } from '../../src/host-process.ts'
import { openApt } from '../../src/qemu/apt.ts'
import { bench, cacheDir, folder, sh, whyNoVm } from '../helpers.ts'
import { type RegistryServer, serveRegistry } from './registry-server.ts'
import { cleanUp, hasProgram, type Member, run, tarOf, testImage } from './tools.ts'

afterAll(cleanUp)

/** A program that is a whole userland: the one that is installed, or the one of this machine's Debian mirror. */
async function busybox(): Promise<Buffer> {
  const installed = '/usr/bin/busybox'
  if (existsSync(installed) && readFileSync(installed).includes('static')) return readFileSync(installed)
  const work = mkdtempSync(join(tmpdir(), 'busybox-'))
  try {
    const apt = await openApt(join(work, 'apt'), { searchPath: DEFAULT_SEARCH_PATH, programEnv: {} })
    const got = await apt.run('apt-get', ['download', 'busybox-static'], work)
    const deb = readdirSync(work).find((name) => name.endsWith('.deb'))
    if (deb === undefined) throw new Error(`busybox-static: ${got.stderr}`)
    await runHost('dpkg-deb', ['-x', join(work, deb), join(work, 'root')])
    const path = ['bin', 'usr/bin']
      .map((folder) => join(work, 'root', folder, 'busybox'))
      .find((name) => existsSync(name))
    return readFileSync(path ?? installed)
  } finally {
    rmSync(work, { recursive: true })
  }
}

/** A cache of the test's own, with the kernels that are there already. */
function cacheOfOurs(): string {
  const path = folder()
  for (const name of ['kernels', 'probes']) {
    mkdirSync(join(cacheDir, name), { recursive: true })
    symlinkSync(join(cacheDir, name), join(path, name))
  }
  return path
}

const applets = ['sh', 'cat', 'ls', 'stat', 'df', 'mkdir', 'id', 'uname', 'touch', 'dd', 'sync', 'wc', 'rm']
const userland = async (...more: readonly Member[]): Promise<Buffer> =>
  tarOf(
    { name: 'bin/', type: '5' },
    { name: 'bin/busybox', data: await busybox(), mode: 0o755 },
    ...applets.map((name) => ({ name: `bin/${name}`, type: '2', link: 'busybox' })),
    ...more,
  )
/** A package manager that only writes down what it is told, and ends as it is told. */
const apt = (code: number): Member => ({
  name: 'usr/bin/apt-get',
  data: `#!/bin/sh\necho "$@" >> /apt.log\necho "E: what apt says" >&2\nexit ${code}\n`,
  mode: 0o755,
})

describe.skipIf((await whyNoVm()) !== undefined)('an image of a registry', () => {
  let server: RegistryServer
  beforeAll(async () => {
    server = await serveRegistry()
  })
  afterAll(() => server.close())

  test('boots, as its layers say, on a disk larger than it, with its packages and its environment', async () => {
    const image = testImage(
      [
        await userland({ name: 'gone', data: 'x' }, apt(0)),
        tarOf(
          { name: '.wh.gone' },
          { name: 'mine', data: 'owned', mode: 0o640, uid: 70_000, gid: 80_000 },
          { name: 'also', type: '1', link: 'mine' },
          { name: 'null', type: '3', major: 1, minor: 3, mode: 0o666 },
          { name: 'sparse', data: Buffer.concat([Buffer.alloc(3_000_000), Buffer.from('end')]) },
          ...Array.from({ length: 400 }, (_, index) => ({ name: `many/file-${index}`, data: `${index}` })),
        ),
      ],
      { config: { Env: ['FROM_IMAGE=yes', 'PATH=/opt/own:/usr/bin:/bin', 'BOTH=image', 'ASKED=image'] } },
    )
    server.tag('latest', image.manifest, image)
    const { vm, workspace, root, host, events } = bench(
      {
        image: { ref: `${server.host}/tiny`, packages: ['jq', 'git'] },
        env: { BOTH: 'spec' },
        // More groups than one block describes.
        diskMiB: 40_960,
      },
      { cacheDir: cacheOfOurs() },
    )
    const out = async (text: string): Promise<string> => (await sh(vm, text)).out
    try {
      writeFileSync(join(workspace, 'shared'), 'from the host')
      expect(await out('echo hello; cat shared; uname')).toBe('hello\nfrom the hostLinux\n')
      expect(
        await out("stat -c '%a %u:%g %h' /mine /also; cat /also; ls /gone; wc -c < /sparse; ls /many | wc -l"),
      ).toBe('640 70000:80000 2\n640 70000:80000 2\nowned3000003\n400\n')
      expect(await out('echo x > /null && cat /null; cat /etc/hostname')).toBe('reve\n')
      const { out: env } = await sh(vm, 'echo $FROM_IMAGE $BOTH $ASKED $HOME $PATH', { env: { ASKED: 'request' } })
      expect(env).toBe('yes spec request /root /opt/own:/usr/bin:/bin\n')
      const log = (await out('cat /apt.log')).trim().split('\n')
      expect(log.map((line) => line.split(' ').at(-1))).toEqual(['update', 'git', 'clean'])
      expect(log[1]).toMatch(/--no-install-recommends install jq git$/)

      const size = await out('df -m / | { read -r head; read -r device size rest; echo $size; }')
      expect(Number(size)).toBeGreaterThan(38_000)
      // More than the image has room for: the disk has grown.
      const fill = 'for i in 1 2 3; do dd if=/dev/zero of=/big$i bs=1M count=60 2>/dev/null; done; sync'
      expect(
        await out(`${fill}; mkdir /new; echo kept > /new/x; cat /big* | wc -c; cat /sys/fs/ext4/*/errors_count`),
      ).toBe(`${3 * 60 * 2 ** 20}\n0\n`)
      await vm.stop()
      expect(await out('cat /new/x; cat /apt.log | wc -l')).toBe('kept\n3\n')
      await vm.stop()
      if (hasProgram('e2fsck')) {
        const state = join(root, 'state')
        const disk = readdirSync(state).find((name) => name.endsWith('.qcow2')) ?? ''
        run('qemu-img', ['convert', '-O', 'raw', join(state, disk), join(root, 'raw')])
        run('e2fsck', ['-f', '-n', join(root, 'raw')])
      }

      // A newer image under the same name is a new disk, once it was asked for.
      const newer = testImage([await userland(apt(0), { name: 'version', data: '2' })])
      server.tag('latest', newer.manifest, newer)
      expect(await out('cat /new/x')).toBe('kept\n')
      await vm.stop()
      await prepareImage({ ref: `${server.host}/tiny`, packages: [] }, host, { refresh: true })
      expect(await out('cat /version; ls /new')).toBe('2')
      expect(events).toContainEqual({ type: 'notice', text: expect.stringContaining('another image by now') })
    } finally {
      await vm.remove()
    }
  })

  test('whose packages cannot be installed does not start, and leaves no disk', async () => {
    const image = testImage([await userland(apt(100))])
    server.tag('broken', image.manifest, image)
    const { vm, root } = bench(
      { image: { ref: `${server.host}/tiny:broken`, packages: ['git'] } },
      { cacheDir: cacheOfOurs() },
    )
    await expect(vm.start()).rejects.toMatchObject({
      code: 'image_failed',
      message: expect.stringMatching(/git could not be installed.*E: what apt says.*allow/),
    })
    expect(readdirSync(join(root, 'state')).filter((name) => name.endsWith('.qcow2'))).toEqual([])
    await vm.remove()
  })

  test('that needs a larger disk is not put onto a smaller one', async () => {
    // So many files that their inodes alone need nine groups of 128 MiB.
    const many = Array.from({ length: 70_000 }, (_, index) => ({ name: `many/${index % 100}/${index}` }))
    const image = testImage([await userland(...many)])
    server.tag('large', image.manifest, image)
    const { vm } = bench(
      { image: { ref: `${server.host}/tiny:large`, packages: [] }, diskMiB: 1024 },
      { cacheDir: cacheOfOurs() },
    )
    await expect(vm.start()).rejects.toMatchObject({ code: 'bad_spec', message: expect.stringContaining('1152 MiB') })
    await vm.remove()
  })
})
