import { createHash, randomBytes } from 'node:crypto'
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type ByteSource, type GuestPath, MicroVmError, type ReadFileOptions } from '../src/index.ts'
import { bench, removeFolders, sh, until, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const { vm, workspace } = bench()
afterAll(async () => {
  await vm.stop()
  removeFolders()
})

const read = async (path: GuestPath, options?: ReadFileOptions): Promise<Buffer> =>
  Buffer.from(await new Response(vm.readFile(path, options)).arrayBuffer())

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'worked',
    (error: unknown) => (error instanceof MicroVmError ? error.code : String(error)),
  )

async function* pieces(bytes: Uint8Array, size: number): ByteSource {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size))
}

describe.skipIf(why !== undefined)('a file of the guest', () => {
  test('is what was written, whatever bytes it holds, and however it is given', async () => {
    const bytes = Uint8Array.from({ length: 1000 }, (_, index) => index % 256)
    await vm.writeFile('/tmp/bytes', bytes)
    expect(await read('/tmp/bytes')).toEqual(Buffer.from(bytes))
    await vm.writeFile('/tmp/bytes', 'text é')
    expect((await read('/tmp/bytes')).toString()).toBe('text é')
    await vm.writeFile('/tmp/bytes', pieces(bytes, 7))
    expect(await read('/tmp/bytes')).toEqual(Buffer.from(bytes))
    await vm.writeFile('/tmp/bytes', new Response(bytes).body ?? '')
    expect(await read('/tmp/bytes')).toEqual(Buffer.from(bytes))
    await vm.writeFile('/tmp/empty', '')
    expect(await read('/tmp/empty')).toEqual(Buffer.alloc(0))
  })

  test('may be 30 MB in both directions', async () => {
    const bytes = randomBytes(30 * 1024 * 1024)
    await vm.writeFile('/tmp/large', bytes)
    const digest = createHash('sha256')
    for await (const chunk of vm.readFile('/tmp/large')) digest.update(chunk)
    expect(digest.digest('hex')).toBe(createHash('sha256').update(bytes).digest('hex'))
    await sh(vm, 'rm /tmp/large')
  })

  test('is read in part', async () => {
    await vm.writeFile('/tmp/part', '0123456789')
    const parts = [{ offset: 3 }, { maxBytes: 4 }, { offset: 8, maxBytes: 100 }, { offset: 50 }, { maxBytes: 0 }]
    const texts = await Promise.all(parts.map(async (part) => (await read('/tmp/part', part)).toString()))
    expect(texts).toEqual(['3456789', '0123', '89', '', ''])
  })

  test('has the mode that it is given, else the one that it had', async () => {
    const mode = async (): Promise<string> => (await sh(vm, 'stat -c %a /tmp/mode')).out.trim()
    await vm.writeFile('/tmp/mode', 'a')
    expect(await mode()).toBe('644')
    await vm.writeFile('/tmp/mode', 'b', { mode: 0o750 })
    expect(await mode()).toBe('750')
    await vm.writeFile('/tmp/mode', 'c')
    await vm.writeFile('/tmp/mode', 'd', { atomic: true })
    expect(await mode()).toBe('750')
    await vm.writeFile('/tmp/mode', 'e', { atomic: true, mode: 0o600 })
    expect([await mode(), (await read('/tmp/mode')).toString()]).toEqual(['600', 'e'])
  })

  test('of the workspace is the file of the host', async () => {
    await vm.writeFile('/workspace/shared', 'from outside', { mode: 0o755 })
    expect(readFileSync(join(workspace, 'shared'), 'utf8')).toBe('from outside')
    expect(statSync(join(workspace, 'shared')).mode & 0o777).toBe(0o755)
    writeFileSync(join(workspace, 'shared'), 'changed')
    chmodSync(join(workspace, 'shared'), 0o644)
    expect((await read('/workspace/shared')).toString()).toBe('changed')
    await vm.writeFile('/workspace/shared', 'replaced', { atomic: true })
    expect(readFileSync(join(workspace, 'shared'), 'utf8')).toBe('replaced')
    expect(readdirSync(workspace)).toEqual(['shared'])
  })

  test('may have any name', async () => {
    for (const name of [Buffer.from('/tmp/\xff\x01\n name\x1b[0m', 'latin1'), '/tmp/ü -rf *', Buffer.from('/tmp/-n')]) {
      await vm.writeFile(name, 'named', { atomic: true })
      expect((await read(name)).toString()).toBe('named')
    }
    expect(await codeOf(vm.writeFile('/tmp/a\0b', ''))).toBe('bad_spec')
    expect(await codeOf(vm.writeFile('tmp/a', ''))).toBe('bad_spec')
    expect(() => vm.readFile('')).toThrow('is not the absolute path')
    expect(() => vm.readFile('/a', { offset: -1 })).toThrow('offset is -1')
  })

  test('that is not there, or is none, says so', async () => {
    await sh(vm, 'mkfifo /tmp/pipe; mkdir /tmp/folder')
    expect(await codeOf(read('/no/such'))).toBe('not_found')
    expect(await codeOf(vm.writeFile('/no/such', ''))).toBe('not_found')
    expect(await codeOf(vm.writeFile('/no/such', '', { atomic: true }))).toBe('not_found')
    for (const path of ['/tmp/folder', '/tmp/pipe', '/dev/zero', '/'])
      expect([path, await codeOf(read(path))]).toEqual([path, 'not_a_file'])
    for (const path of ['/tmp/folder', '/tmp/pipe', '/dev/null'])
      for (const atomic of [false, true])
        expect([path, await codeOf(vm.writeFile(path, 'x', { atomic }))]).toEqual([path, 'not_a_file'])
    expect(await codeOf(vm.writeFile('/proc/version', 'x'))).toBe('file_failed')
    await expect(read('/no/such')).rejects.toThrow('reading /no/such in the guest: No such file or directory')
  })

  test('that has no room says so, and an atomic one leaves the old', async () => {
    await sh(vm, 'mkdir /tmp/small && mount -t tmpfs -o size=1M tmpfs /tmp/small && echo old > /tmp/small/file')
    const large = new Uint8Array(3 * 1024 * 1024)
    expect(await codeOf(vm.writeFile('/tmp/small/file', large, { atomic: true }))).toBe('no_space')
    expect((await sh(vm, 'cat /tmp/small/*; ls -A /tmp/small')).out).toBe('old\nfile\n')
    expect(await codeOf(vm.writeFile('/tmp/small/file', large))).toBe('no_space')
  })

  test('whose source fails is told so, and an atomic one leaves the old', async () => {
    const failing = async function* (): ByteSource {
      yield await Promise.resolve(new Uint8Array(100_000))
      throw new Error('the source broke')
    }
    await vm.writeFile('/tmp/kept', 'old')
    const error: unknown = await vm
      .writeFile('/tmp/kept', failing(), { atomic: true })
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'input_failed', cause: new Error('the source broke') })
    expect((await sh(vm, 'cat /tmp/kept; ls -A /tmp | grep reve')).out).toBe('old')
  })

  test('whose writing is cancelled likewise', async () => {
    const cancel = new AbortController()
    const endless = async function* (): ByteSource {
      for (let count = 0; ; count++) {
        if (count === 20) cancel.abort()
        yield await Promise.resolve(new Uint8Array(10_000))
      }
    }
    await vm.writeFile('/tmp/kept', 'old')
    expect(await codeOf(vm.writeFile('/tmp/kept', endless(), { atomic: true, signal: cancel.signal }))).toBe('aborted')
    expect((await sh(vm, 'cat /tmp/kept; ls -A /tmp | grep reve')).out).toBe('old')
  })

  test('whose reader leaves is not read on', async () => {
    await sh(vm, 'truncate -s 1G /tmp/sparse')
    for await (const chunk of vm.readFile('/tmp/sparse')) {
      expect(chunk.length).toBeGreaterThan(0)
      break
    }
    await until(
      async () => (await sh(vm, 'ls /sys/fs/cgroup/reve | grep -c "^[0-9]"')).out.trim() === '1',
      'nothing runs but the command that asks',
    )
    expect(await codeOf(read('/tmp/sparse', { signal: AbortSignal.abort() }))).toBe('aborted')
  })
})
