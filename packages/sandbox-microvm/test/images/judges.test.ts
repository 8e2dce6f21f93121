import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { prepareImage } from '../../src/index.ts'
import { folder, until } from '../helpers.ts'
import { cleanUp, hasProgram, type Member, run, tarOf, testImage, type TestImage, tinyRoot } from './tools.ts'

afterAll(cleanUp)

/** A layout of the OCI on the disk. */
function layout(image: TestImage): string {
  const path = folder()
  mkdirSync(join(path, 'blobs', 'sha256'), { recursive: true })
  for (const [digest, bytes] of [[image.digest, image.manifest] as const, ...image.blobs])
    writeFileSync(join(path, 'blobs', 'sha256', digest.slice(7)), bytes)
  writeFileSync(join(path, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  const entry = {
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    digest: image.digest,
    size: image.manifest.length,
    annotations: { 'org.opencontainers.image.ref.name': '1' },
  }
  writeFileSync(join(path, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [entry] }))
  return path
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  await new Promise((done) => probe.close(done))
  return port
}

/** What lies in a folder, without following links. */
function listing(root: string, path = ''): Record<string, string> {
  const lines: Record<string, string> = {}
  for (const name of readdirSync(join(root, path))) {
    const below = join(path, name)
    const at = join(root, below)
    const stats = lstatSync(at)
    const kind = stats.isDirectory()
      ? 'folder'
      : stats.isSymbolicLink()
        ? `-> ${readlinkSync(at)}`
        : `${stats.nlink} ${readFileSync(at, 'latin1')}`
    lines[below] = stats.isSymbolicLink() ? kind : `${(stats.mode & 0o7777).toString(8)} ${kind}`
    if (stats.isDirectory()) Object.assign(lines, listing(root, below))
  }
  return lines
}

describe.skipIf(!['umoci', 'debugfs'].every(hasProgram) || process.getuid?.() !== 0)('layers', () => {
  test('make the files that umoci makes of them', async () => {
    const part = fc.constantFrom('a', 'b', 'c')
    const path = fc.array(part, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'))
    // Each layer is one that a tool would write: names once, folders before what is in them, marks beside files.
    const layer = fc
      .array(
        fc.record({
          name: path,
          type: fc.constantFrom('0', '0', '5', 'white', 'opaque'),
          data: fc.string({ maxLength: 4 }),
        }),
        { minLength: 1, maxLength: 7 },
      )
      .map((list) => {
        const members: Member[] = []
        const taken = new Map<string, string>()
        for (const { name, type, data } of list) {
          const parents = name
            .split('/')
            .map((_, index, parts) => parts.slice(0, index).join('/'))
            .slice(1)
          if (taken.has(name) || parents.some((parent) => taken.has(parent) && taken.get(parent) !== '5')) continue
          for (const parent of parents)
            if (!taken.has(parent)) {
              taken.set(parent, '5')
              members.push({ name: `${parent}/`, type: '5' })
            }
          taken.set(name, type === 'opaque' ? '5' : type)
          const slash = name.lastIndexOf('/') + 1
          if (type === 'white') members.push({ name: `${name.slice(0, slash)}.wh.${name.slice(slash)}` })
          else if (type === 'opaque') members.push({ name: `${name}/`, type: '5' }, { name: `${name}/.wh..wh..opq` })
          else members.push(type === '5' ? { name: `${name}/`, type } : { name, data })
        }
        return members
      })
    for (const layers of fc.sample(fc.array(layer, { minLength: 2, maxLength: 4 }), { numRuns: 25, seed: 11 })) {
      const image = testImage([tinyRoot(), ...layers.map((members) => tarOf(...members))], {
        pack: (plain) => gzipSync(plain),
      })
      const source = layout(image)
      const bundle = join(folder(), 'bundle')
      run('umoci', ['unpack', '--image', `${source}:1`, bundle])
      const ours = await prepareImage(
        { ref: `oci:${source}`, packages: [] },
        { cacheDir: folder(), runtimeDir: '/run/none' },
      )
      const out = folder()
      run('debugfs', ['-R', `rdump / ${out}`, ours.path])
      const theirs = listing(join(bundle, 'rootfs'))
      const mine = listing(out)
      for (const name of ['dev', 'etc', 'proc', 'root', 'run', 'sys', 'tmp', 'workspace', 'lost+found'])
        for (const key of Object.keys(mine)) if (key === name || key.startsWith(`${name}/`)) delete mine[key]
      expect(mine, JSON.stringify(layers)).toEqual(theirs)
    }
  })
})

describe.skipIf(!['docker-registry', 'skopeo'].every(hasProgram))("Docker's own registry", () => {
  test('gives an image that skopeo put there', async () => {
    const image = testImage([tinyRoot({ name: 'mark', data: 'pushed' }), tarOf({ name: 'over', data: 'x' })], {
      pack: (plain) => gzipSync(plain),
      config: { Env: ['A=b'] },
    })
    const port = await freePort()
    const work = folder()
    chmodSync(work, 0o755)
    writeFileSync(
      join(work, 'config.yml'),
      `version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: ${work}/data\nhttp:\n  addr: 127.0.0.1:${port}\n`,
    )
    const registry = spawn('docker-registry', ['serve', join(work, 'config.yml')], { stdio: 'ignore' })
    try {
      const answers = async (): Promise<boolean> =>
        fetch(`http://127.0.0.1:${port}/v2/`).then(
          ({ ok }) => ok,
          () => false,
        )
      await until(answers, 'the registry')
      const name = `127.0.0.1:${port}/team/app:1`
      run('skopeo', [
        'copy',
        '--insecure-policy',
        '--dest-tls-verify=false',
        `oci:${layout(image)}:1`,
        `docker://${name}`,
      ])
      const cacheDir = folder()
      const pulled = await prepareImage({ ref: name, packages: [] }, { cacheDir, runtimeDir: '/run/none' })
      if (hasProgram('debugfs')) expect(run('debugfs', ['-R', 'cat /mark', pulled.path])).toBe('pushed')
      // And the archives that it writes are the same image.
      const saved = join(work, 'saved.tar')
      run('skopeo', [
        'copy',
        '--insecure-policy',
        '--src-tls-verify=false',
        `docker://${name}`,
        `docker-archive:${saved}:app:1`,
      ])
      const loaded = await prepareImage(
        { ref: `docker-archive:${saved}:app:1`, packages: [] },
        { cacheDir, runtimeDir: '/run/none' },
      )
      if (hasProgram('debugfs')) expect(run('debugfs', ['-R', 'cat /mark', loaded.path])).toBe('pushed')
      const packed = join(work, 'packed.tar')
      run('skopeo', [
        'copy',
        '--insecure-policy',
        '--src-tls-verify=false',
        `docker://${name}`,
        `oci-archive:${packed}:1`,
      ])
      expect(
        (await prepareImage({ ref: `oci-archive:${packed}:1`, packages: [] }, { cacheDir, runtimeDir: '/run/none' }))
          .id,
      ).toBe(pulled.id)
    } finally {
      const ended = once(registry, 'close')
      registry.kill()
      await ended
    }
  })
})
