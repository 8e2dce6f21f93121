import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { userInfo } from 'node:os'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GitError, type GitBridgeOptions } from '../src/index.ts'
import { git, repository, world, type World } from './repositories.ts'

let here: World
beforeEach(async () => {
  here = await world()
  repository(here.path('work'))
  git(here.root, 'clone', '--quiet', '--bare', 'work', 'remote.git')
})
afterEach(() => here.remove())

const actor = 'tester'

async function bridgeWith(options: Partial<GitBridgeOptions>) {
  const other = await world(options)
  return { ...other, [Symbol.asyncDispose]: () => other.remove() }
}

describe('ssh, as it is called', () => {
  /** Stands for ssh: notes how it is called and with which settings, and runs the command here. */
  function fakeSsh(): string {
    const program = here.path("it's ssh")
    writeFileSync(
      program,
      `#!/bin/sh\n{ env; printf '%s\\n' "$@"; cat "$2"; } >>'${here.path('seen')}'\nfor last; do :; done\nexec sh -c "$last"\n`,
    )
    chmodSync(program, 0o755)
    return program
  }

  test('has settings of its own, asks nobody, knows no key and no agent that was not given', async () => {
    process.env['SSH_AUTH_SOCK'] = here.path('agent-of-the-user')
    try {
      await using other = await bridgeWith({ ssh: { program: fakeSsh() } })
      const src = `ssh://git@example.invalid${here.path('remote.git')}`
      const { commit, tree } = await other.bridge.import({ src, name: 'it', actor })
      expect(commit).toBe(git(here.path('work'), 'rev-parse', 'HEAD'))
      expect(tree).toBe(other.store.refs.resolve('it'))
      await other.bridge.export({ name: 'it', tree: other.store.emptyTree, branch: 'new', message: 'new', actor })
      expect((await other.bridge.push({ name: 'it', branch: 'new', actor })).outcome).toBe('created')
    } finally {
      delete process.env['SSH_AUTH_SOCK']
    }
    const seen = readFileSync(here.path('seen'), 'utf8').split('\n')
    for (const line of ['BatchMode yes', 'StrictHostKeyChecking yes', 'IdentityAgent none', 'IdentityFile none'])
      expect(seen).toContain(line)
    expect(seen).toContain('git@example.invalid')
    expect(seen.some((line) => line.includes('agent-of-the-user') || line.startsWith('SSH_'))).toBe(false)
  })

  test('gets the key of its own host, the agent and the known hosts that were given', async () => {
    const agent = here.path('agent.sock')
    await using other = await bridgeWith({
      ssh: { program: fakeSsh(), agent, knownHosts: here.path('known hosts') },
      credentials: [
        { scheme: 'ssh', host: 'other.invalid', keyFile: here.path('other-key') },
        { scheme: 'ssh', host: 'example.invalid', keyFile: here.path('key%h') },
      ],
    })
    await other.bridge.import({ src: `git@example.invalid:${here.path('remote.git')}`, name: 'it', actor })
    const seen = readFileSync(here.path('seen'), 'utf8').split('\n')
    expect(seen).toContain(`IdentityFile "${here.path('key%%h')}"`)
    expect(seen).toContain(`IdentityAgent "${agent}"`)
    expect(seen).toContain(`UserKnownHostsFile "${here.path('known hosts')}"`)
    expect(seen.some((line) => line.includes('other-key'))).toBe(false)
  })

  test('takes no path that its settings would read as something else', async () => {
    for (const keyFile of ['relative', '/a"b', '/a\nProxyCommand x', '/${HOME}/x']) {
      await using other = await bridgeWith({
        ssh: { program: fakeSsh() },
        credentials: [{ scheme: 'ssh', host: 'example.invalid', keyFile }],
      })
      await expect(
        other.bridge.import({ src: 'ssh://example.invalid/x.git', name: 'it', actor }),
      ).rejects.toMatchObject({ code: 'bad_argument' })
    }
    expect(existsSync(here.path('seen'))).toBe(false)
  })
})

const sshd = ['/usr/sbin/sshd', '/usr/local/sbin/sshd'].find((path) => existsSync(path))
const isRoot = process.getuid?.() === 0
const hasServer =
  sshd !== undefined && spawnSync('ssh-keygen', ['-?']).error === undefined && (!isRoot || existsSync('/run/sshd'))
if (!hasServer) console.warn('no sshd here, or it cannot be started: ssh is tested with one that only pretends')

describe.skipIf(!hasServer)('ssh, with a server of its own', () => {
  test('imports and pushes with the given key, and says what is wrong without it or with another host', async () => {
    for (const name of ['host', 'user', 'stranger'])
      execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', here.path(name)])
    writeFileSync(here.path('authorized'), readFileSync(here.path('user.pub')))
    const port = await freePort()
    const settings = [
      `ListenAddress 127.0.0.1:${port}`,
      `HostKey ${here.path('host')}`,
      `AuthorizedKeysFile ${here.path('authorized')}`,
      `PidFile ${here.path('pid')}`,
      'StrictModes no',
      'UsePAM no',
      'PermitRootLogin yes',
      'PasswordAuthentication no',
      'KbdInteractiveAuthentication no',
    ]
    writeFileSync(here.path('sshd.conf'), `${settings.join('\n')}\n`)
    const server = spawn(sshd ?? '', ['-D', '-e', '-f', here.path('sshd.conf')], {
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    try {
      await new Promise<void>((resolve, reject) => {
        let said = ''
        server.stderr.on('data', (text: Buffer) => {
          said += text.toString()
          if (said.includes('Server listening')) resolve()
        })
        server.once('close', () => reject(new Error(said)))
      })
      const host = `127.0.0.1:${port}`
      const key = readFileSync(here.path('host.pub'), 'utf8').split(' ').slice(0, 2).join(' ')
      writeFileSync(here.path('known'), `[127.0.0.1]:${port} ${key}\n`)
      writeFileSync(here.path('unknown'), '')
      const src = `ssh://${userInfo().username}@${host}${here.path('remote.git')}`
      const attempt = async (keyName: string, known: string) => {
        await using other = await bridgeWith({
          ssh: { knownHosts: here.path(known) },
          credentials: [{ scheme: 'ssh', host, keyFile: here.path(keyName) }],
        })
        const { commit } = await other.bridge.import({ src, name: 'it', actor })
        await other.bridge.export({ name: 'it', tree: other.store.emptyTree, branch: 'new', message: 'new', actor })
        return { commit, outcome: (await other.bridge.push({ name: 'it', branch: 'new', actor })).outcome }
      }
      expect(await attempt('user', 'known')).toEqual({
        commit: git(here.path('work'), 'rev-parse', 'HEAD'),
        outcome: 'created',
      })
      await expect(attempt('stranger', 'known')).rejects.toMatchObject({
        code: 'auth_failed',
        message: expect.stringContaining('Permission denied'),
      })
      const error: unknown = await attempt('user', 'unknown').catch((caught: unknown) => caught)
      expect(error).toBeInstanceOf(GitError)
      expect(error).toMatchObject({ code: 'auth_failed', message: expect.stringContaining('host key') })
    } finally {
      server.kill()
    }
  })
})

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise<void>((resolve) => void server.close(() => resolve()))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
