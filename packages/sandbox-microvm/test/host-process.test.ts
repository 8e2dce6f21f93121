import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { findProgram, HOST_PROGRAMS, runHost, spawnHost } from '../src/host-process.ts'
import { hostPackages, MicroVmError } from '../src/index.ts'

const src = fileURLToPath(new URL('../src', import.meta.url))

describe('programs of the host', () => {
  test('are started in one file only, from a closed list without a shell', () => {
    const starters = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter(
      (file) =>
        file.endsWith('.ts') &&
        /['"](?:node:)?(?:child_process|worker_threads|cluster)['"]/.test(readFileSync(join(src, file), 'utf8')),
    )
    // The watcher's own text starts what it is given, and is itself started from that file.
    expect(starters.toSorted()).toEqual(['host-process.ts', join('qemu', 'box.ts')])
    expect(readFileSync(join(src, 'qemu', 'box.ts'), 'utf8')).not.toMatch(/^import.*child_process/m)
    expect(readFileSync(join(src, 'host-process.ts'), 'utf8')).not.toMatch(
      /\bshell: (true|['"`])|\bexec\(|Sync\(.*program/,
    )
    expect(Object.keys(HOST_PROGRAMS).filter((name) => /^(sh|bash|dash|zsh|env|sudo|ssh|git)$/.test(name))).toEqual([])
  })

  test('get no environment of the caller', async () => {
    process.env['REVE_TEST_SECRET'] = 'sentinel'
    const child = spawnHost('node', ['-p', 'JSON.stringify(Object.keys(process.env))'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let out = ''
    for await (const chunk of child.stdout ?? []) out += String(chunk)
    delete process.env['REVE_TEST_SECRET']
    expect(JSON.parse(out)).toEqual(['PATH', 'LC_ALL'])
  })

  test('report their exit code and their last words, take input, and end with the signal', async () => {
    const failed = await runHost(
      'node',
      ['-e', 'process.stdin.pipe(process.stdout); process.stderr.write("one\\ntwo"); process.exitCode = 3'],
      { input: Buffer.from('in') },
    )
    expect(failed).toEqual({ code: 3, stdout: Buffer.from('in'), stderr: 'one\ntwo' })
    const cancel = new AbortController()
    const running = runHost('node', ['-e', 'setTimeout(() => {}, 1e9)'], { signal: cancel.signal })
    cancel.abort()
    await expect(running).rejects.toMatchObject({ code: 'aborted' })
  })

  test('that are missing are a typed failure', () => {
    expect(findProgram('bwrap', ['/no/such'])).toBeUndefined()
    expect(() => spawnHost('mke2fs', [], { searchPath: ['/no/such'] })).toThrow(MicroVmError)
  })
})

describe('what has to be installed', () => {
  const nothing = { searchPath: ['/no/such'] }
  const linux = { platform: 'linux', arch: 'x64', isRoot: true }

  test('is one command on each system', async () => {
    const root = await hostPackages(nothing, linux)
    expect(root.command).toBe(
      'apt-get install -y --no-install-recommends qemu-system-x86 bubblewrap mmdebstrap util-linux e2fsprogs apt dpkg xz-utils',
    )
    expect(root.missing.find(({ program }) => program === 'bwrap')).toEqual({
      program: 'bwrap',
      package: 'bubblewrap',
      reason: HOST_PROGRAMS.bwrap,
      when: 'wanted',
    })
    const user = await hostPackages(nothing, { ...linux, isRoot: false })
    expect(user.command).toBe(`sudo ${root.command} uidmap`)
    expect((await hostPackages(nothing, { platform: 'darwin', arch: 'arm64', isRoot: false })).command).toBe(
      'brew install qemu',
    )
  })

  test('is nothing where all is there', async () => {
    const everything = Object.keys(HOST_PROGRAMS).every(
      (name) => findProgram(name as keyof typeof HOST_PROGRAMS) !== undefined,
    )
    const { missing, command } = await hostPackages({}, linux)
    expect([missing.length === 0, command === '']).toEqual([everything, everything])
  })
})
