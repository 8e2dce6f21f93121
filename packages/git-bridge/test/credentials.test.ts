import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isFor } from '../src/credential-channel.ts'
import { credentialFor, secretsOf } from '../src/credentials.ts'
import { GitError, parseGitCredentials, readGitCredentials } from '../src/index.ts'
import { parseSource } from '../src/names.ts'

const secret = 'sentinel-4711'

describe('parseGitCredentials', () => {
  test('takes the lines that git stores, and keys for ssh', () => {
    const text = [
      '# a comment',
      '',
      `https://robot:${secret}@Example.com`,
      'https://a%40b:p%3Aq%2F%25@example.com:8443/\r',
      'http://x:y@127.0.0.1:80',
      'ssh://git@Example.com:22 /keys/with a space',
    ].join('\n')
    expect(parseGitCredentials(text)).toEqual([
      { scheme: 'https', host: 'example.com', username: 'robot', password: secret },
      { scheme: 'https', host: 'example.com:8443', username: 'a@b', password: 'p:q/%' },
      { scheme: 'http', host: '127.0.0.1', username: 'x', password: 'y' },
      { scheme: 'ssh', host: 'example.com', keyFile: '/keys/with a space' },
    ])
  })

  test.each([
    secret,
    `robot:${secret}`,
    `https://${secret}@example.com`,
    `https://:${secret}@example.com`,
    `https://robot:${secret}@example.com/team`,
    `https://robot:${secret}@example.com?x`,
    `https://robot:${secret}%ff@example.com`,
    `https://robot:${secret}%0ahost=evil@example.com`,
    `https://robot:${secret}@example.com and more`,
    `ftp://robot:${secret}@example.com`,
    `ssh://git:${secret}@example.com /key`,
    `ssh://${secret}.example.com`,
    `ssh://example.com ${secret}`,
  ])('refuses %j with the number of its line, and does not repeat it', (line) => {
    const error: unknown = (() => {
      try {
        return parseGitCredentials(`\n${line}\n`, '/some/file')
      } catch (caught) {
        return caught
      }
    })()
    expect(error).toBeInstanceOf(GitError)
    expect(error).toMatchObject({ code: 'bad_credentials', message: expect.stringContaining('line 2 of /some/file') })
    expect(JSON.stringify([String(error), error]).includes(secret)).toBe(false)
  })

  test('any user and password come back from how git stores them', () => {
    const part = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 30 }).filter((text) => {
      // oxlint-disable-next-line no-control-regex -- no header can hold them
      return text.isWellFormed() && !/[\u0000-\u001f\u007f]/.test(text)
    })
    fc.assert(
      fc.property(part, part, (username, password) => {
        const line = `https://${encodeURIComponent(username)}:${encodeURIComponent(password)}@example.com`
        expect(parseGitCredentials(line)).toEqual([{ scheme: 'https', host: 'example.com', username, password }])
      }),
    )
  })
})

test('a file that everybody can read is refused, with what to do', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'git-bridge-'))
  try {
    const file = join(folder, 'credentials')
    await expect(readGitCredentials(file)).rejects.toMatchObject({ code: 'bad_credentials' })
    writeFileSync(file, `https://robot:${secret}@example.com\n`)
    chmodSync(file, 0o644)
    await expect(readGitCredentials(file)).rejects.toMatchObject({ hint: `chmod 600 ${file}` })
    chmodSync(file, 0o640)
    expect(await readGitCredentials(file)).toHaveLength(1)
  } finally {
    rmSync(folder, { recursive: true })
  }
})

describe('a credential', () => {
  const credentials = parseGitCredentials(
    'https://a:b@example.com\nhttps://c:d@example.com:8443\nssh://example.com /key\nhttps://e:f@example.com',
  )
  test.each([
    ['https://example.com/x.git', 0],
    ['https://EXAMPLE.com:443/x.git', 0],
    ['https://example.com:8443/x.git', 1],
    ['ssh://git@example.com/x.git', 2],
    ['git@Example.com:x.git', 2],
    ['http://example.com/x.git', undefined],
    ['https://example.com.evil.org/x.git', undefined],
    ['ssh://example.com:2222/x.git', undefined],
    ['git://example.com/x.git', undefined],
    ['/example.com', undefined],
  ])('for %s is number %s', (src, index) => {
    expect(credentialFor(parseSource(src), credentials)).toEqual(index === undefined ? undefined : credentials[index])
  })

  test('answers only a question about its own scheme, host and user', () => {
    const login = { scheme: 'https', host: 'example.com', username: 'a', password: 'b' } as const
    expect(isFor(login, 'protocol=https\nhost=example.com')).toBe(true)
    expect(isFor(login, 'capability[]=authtype\nprotocol=https\nhost=EXAMPLE.com:443\nwwwauth[]=Basic')).toBe(true)
    expect(isFor(login, 'protocol=https\nhost=example.com\nusername=a')).toBe(true)
    for (const question of [
      'protocol=http\nhost=example.com',
      'protocol=https\nhost=example.com:8443',
      'protocol=https\nhost=example.com\nusername=b',
      'protocol=https\nhost=example.com@evil.org',
      'protocol=https\nhost=evil.org/example.com',
      'host=example.com',
      'protocol=https',
      '',
    ])
      expect([question, isFor(login, question)]).toEqual([question, false])
  })

  test('is hidden in every form in which it may come back', () => {
    const password = 'p/w:ü'
    const forms = secretsOf({ scheme: 'https', host: 'h', username: 'u', password })
    expect(forms).toEqual(
      expect.arrayContaining([password, 'p%2Fw%3A%C3%BC', Buffer.from(`u:${password}`).toString('base64')]),
    )
    expect(secretsOf({ scheme: 'ssh', host: 'h', keyFile: '/key' })).toEqual([])
  })
})
