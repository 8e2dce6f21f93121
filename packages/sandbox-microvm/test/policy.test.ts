import { describe, expect, test } from 'vitest'
import { checkPolicy, createMicroVm, MicroVmError, parsePolicy, policyToSpec } from '../src/index.ts'
import { bench, removeFolders } from './helpers.ts'

const problems = (value: unknown): readonly string[] => {
  const checked = checkPolicy(value)
  return checked.ok ? [] : checked.problems.map(({ path, message }) => `${path}: ${message}`)
}

const secret = { env: 'TOKEN', source: 'HOST_TOKEN', hosts: ['github.com'] }

describe('a policy', () => {
  test("that says nothing has the seed's defaults", () => {
    expect(parsePolicy({})).toEqual({
      image: 'debian:trixie-slim',
      cpus: 2,
      memory: 2048,
      disk: 16_384,
      provision: true,
      packages: [
        'ca-certificates',
        'curl',
        'git',
        'gh',
        'build-essential',
        'jq',
        'unzip',
        'ripgrep',
        'fd-find',
        'file',
        'less',
      ],
      mise: [],
      npm: [],
      bootstrap: [],
      allow: [],
      env: {},
      secrets: [],
      backend: 'auto',
    })
  })

  test('has its hosts sorted, once, in lower case', () => {
    expect(parsePolicy({ allow: ['github.com', 'API.github.com', 'github.com'] }).allow).toEqual([
      'api.github.com',
      'github.com',
    ])
  })

  test('may call the disk by its other name, not by both', () => {
    expect(parsePolicy({ root_disk: 2048, workdir: '/workspace', mount_workspace: true })).toMatchObject({ disk: 2048 })
    expect(() => parsePolicy({ root_disk: 2048, disk: 2048 })).toThrow('`disk` and `root_disk` are the same: give one')
  })

  test('may name the VM, and installs language tools before its own bootstrap, unless it provisions nothing', () => {
    const place = { name: 'given', stateDir: '/a/.reve/vm', workspace: '/a/workspace' }
    const policy = { name: 'mine', mise: ['node@lts', 'npm:x@1'], npm: ['@ast-grep/cli'], bootstrap: ['true'] }
    const spec = policyToSpec(parsePolicy(policy), place)
    expect(spec.name).toBe('mine')
    expect(spec.bootstrap.map((line) => line.split('\n')[0])).toEqual([
      '# install mise',
      '# install node@lts, npm:x@1',
      '# install @ast-grep/cli',
      'true',
    ])
    expect(policyToSpec(parsePolicy({ ...policy, provision: false }), place).bootstrap).toEqual(['true'])
  })

  test("takes Lua's empty table for a list and for a map", () => {
    expect(parsePolicy({ allow: {}, env: [], packages: {}, secrets: {} })).toMatchObject({
      allow: [],
      env: {},
      packages: [],
      secrets: [],
    })
    expect(parsePolicy([])).toMatchObject({ cpus: 2 })
  })

  test.each([
    ['an unknown field', { imgae: 'x' }, ['imgae: unknown field (did you mean "image"?)']],
    [
      'what there is no choice about',
      { workdir: '/src', mount_workspace: false, hosts: [] },
      [
        'workdir: must be "/workspace": a relative path means the same inside and outside',
        'mount_workspace: must be true: the workspace is where the agent works',
        'hosts: unknown field: the list of reachable hosts is called `allow`',
      ],
    ],
    [
      'words that a shell would understand, or a program for options',
      { mise: ['node@lts; rm -rf /', '-x'], npm: ['$(id)', '--global'], name: 'a b' },
      [
        'name: must have 1 to 63 letters, digits, _ and -',
        'mise/0: must be a tool of mise such as "node@lts"',
        'mise/1: must be a tool of mise such as "node@lts"',
        'npm/0: must be an npm package such as "typescript@5"',
        'npm/1: must be an npm package such as "typescript@5"',
      ],
    ],
    [
      'a number that is none',
      { cpus: '2', memory: 12.5, disk: 0 },
      [
        'cpus: must be a whole number from 1 to 64',
        'memory: must be a whole number from 128 to 1048576 (MiB)',
        'disk: must be a whole number from 1024 to 16777216 (MiB)',
      ],
    ],
    [
      'an image that is spelt wrongly',
      { image: 'Ghcr.io/x/Y' },
      [expect.stringMatching(/^image: "x\/Y" is not the name of an image\. An image is "debian:trixie-slim"/)],
    ],
    [
      'a package that could be an option',
      { packages: ['git', '-o'] },
      ['packages/1: must be the name of a Debian package'],
    ],
    [
      'hosts that are none',
      { allow: ['https://github.com', 'a b', 'a.*.com', 'x:0', 'github.com/a', '*.com', '2130706433'] },
      [
        'allow/0: must be a host such as "github.com", without a scheme',
        'allow/1: must be a host such as "github.com", "example.com:8443" or "*.example.com"',
        'allow/2: a wildcard stands only in front: "*.example.com"',
        'allow/3: the port must be a whole number from 1 to 65535, such as "example.com:8443"',
        'allow/4: must be a host such as "github.com", without a path',
        'allow/5: "*.com" is too wide: name the domain, "*.example.com"',
        'allow/6: an address is written in full, such as "10.0.0.5:5432"',
      ],
    ],
    [
      'a placeholder that could be anything',
      { secrets: [{ env: 'A', source: 'B', hosts: ['a.example'], placeholder: 'x y' }] },
      ['secrets/0/placeholder: must have 6 to 256 characters of ASCII, no space'],
    ],
    [
      'a list that is none',
      { bootstrap: 'npm ci', allow: { a: 'b' } },
      ['bootstrap: must be a list', 'allow: must be a list'],
    ],
    [
      'environment that is no text',
      { env: { A: 1, 'B C': 'x' } },
      ['env/A: must be a string', 'env/B C: must be the name of an environment variable'],
    ],
    [
      'a secret without hosts',
      { secrets: [{ ...secret, hosts: [] }] },
      ['secrets/0/hosts: at least one host is required'],
    ],
    ['a backend that there is not', { backend: 'docker' }, ['backend: must be "auto", "microsandbox" or "qemu"']],
    ['no table', 'x', [': must be a table of named fields']],
  ])('with %s is refused, with every place', (_, value, expected) => {
    expect(problems(value)).toEqual(expected)
  })

  test('with a secret that lacks its parts names each', () => {
    expect(problems({ secrets: [{}, { ...secret, env: '1X' }] })).toEqual([
      expect.stringMatching(/^secrets\/0\/env: /),
      expect.stringMatching(/^secrets\/0\/source: /),
      expect.stringMatching(/^secrets\/0\/hosts: /),
      'secrets/1/env: must be the name of an environment variable',
    ])
  })

  test("with a secret's value is refused, and the value is in no message", () => {
    const value = 'ghp_do-not-show-this'
    const found = problems({ secrets: [{ ...secret, value }] })
    expect(found).toEqual([expect.stringMatching(/^secrets\/0\/value: .*source/)])
    expect(JSON.stringify(checkPolicy({ secrets: [{ ...secret, value }] }))).not.toContain(value)
    expect(() => parsePolicy({ secrets: [{ ...secret, value }], cpus: 0 })).toThrow(/cpus: .*; |; cpus: /)
    expect(() => parsePolicy({ cpus: 0 })).toThrow(MicroVmError)
  })
})

describe('the spec of a policy', () => {
  const place = { name: 'a', stateDir: '/x/.reve/vm', workspace: '/x/workspace' }

  test('has the workspace as its one mount, and placeholders for secrets', () => {
    const policy = parsePolicy({
      secrets: [secret, { ...secret, env: 'GITHUB_TOKEN', placeholder: 'my-own' }],
      env: { A: 'b' },
      allow: ['github.com'],
    })
    expect(policyToSpec(policy, place)).toMatchObject({
      mounts: [{ host: '/x/workspace', guest: '/workspace' }],
      workdir: '/workspace',
      env: { A: 'b', TOKEN: 'reve-token', GITHUB_TOKEN: 'my-own' },
      egress: { kind: 'list', hosts: ['github.com'] },
      fingerprintFile: '/x/.reve/sandbox-fingerprint',
      idleStopMs: 30_000,
      cpus: 2,
      memoryMiB: 2048,
      diskMiB: 16_384,
    })
    expect(policyToSpec(parsePolicy({}), place).egress).toEqual({ kind: 'none' })
  })

  test('holds packages only where they are wanted', () => {
    expect(policyToSpec(parsePolicy({ provision: false }), place).image).toEqual({
      ref: 'debian:trixie-slim',
      packages: [],
    })
  })
})

describe('a spec', () => {
  test('that is wrong is refused with everything that is', () => {
    const { spec, host } = bench()
    const refused = (changed: object, changedHost = {}): string => {
      try {
        createMicroVm({ ...spec, ...changed }, { ...host, ...changedHost })
      } catch (error) {
        if (error instanceof MicroVmError) return `${error.code}: ${error.message}`
        throw error
      }
      return 'taken'
    }
    expect(refused({})).toBe('taken')
    const all = refused({
      name: 'a b',
      cpus: 0,
      memoryMiB: 1.5,
      workdir: 'relative',
      egress: { kind: 'open' },
      image: { ref: 'alpine:a b', packages: [] },
    })
    for (const part of [
      'bad_spec: ',
      'name "a b"',
      'cpus is 0',
      'memoryMiB is 1.5',
      'workdir "relative"',
      'egress "open"',
      'image "alpine:a b"',
    ])
      expect(all).toContain(part)
    for (const guest of ['/', 'x', '/a/../b', '/a/'])
      expect(refused({ mounts: [{ host: '/tmp', guest }] })).toContain(`"${guest}" cannot be mounted on`)
    expect(refused({ mounts: [{ host: '/no/such', guest: '/x' }] })).toContain('/no/such does not exist')
    expect(
      refused({
        mounts: [
          { host: '/tmp', guest: '/x' },
          { host: '/tmp', guest: '/x' },
        ],
      }),
    ).toContain('mounted on twice')
    expect(refused({}, { runtimeDir: `/${'x'.repeat(80)}` })).toContain('longer than 60 bytes')
    expect(refused({ image: { ref: 'debian:trixie-slim', packages: ['-oEvil'] } })).toContain(
      'not the name of a Debian package',
    )
    removeFolders()
  })
})
