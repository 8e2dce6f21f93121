import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { authFiles, registryCredentials } from '../src/registry-credentials.ts'

const file = (content: unknown): string => {
  const path = join(mkdtempSync(join(tmpdir(), 'auth-')), 'config.json')
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}
const auth = (text: string): { readonly auth: string } => ({ auth: Buffer.from(text).toString('base64') })

test('what a login wrote down is used, the first file first', () => {
  const ask = registryCredentials([
    join(tmpdir(), 'no-such-file'),
    file({ auths: { 'ghcr.io': auth('me:pass:word'), 'empty.example': {} }, credsStore: 'desktop' }),
    file({
      auths: {
        'ghcr.io': auth('other:x'),
        'https://index.docker.io/v1/': auth('hub:y'),
        'https://r.example': auth('r:z'),
      },
    }),
  ])
  expect(ask('ghcr.io')).toEqual({ username: 'me', password: 'pass:word' })
  expect(ask('docker.io')).toEqual({ username: 'hub', password: 'y' })
  expect(ask('r.example')).toEqual({ username: 'r', password: 'z' })
  expect(ask('empty.example')).toBeUndefined()
  expect(ask('other.example')).toBeUndefined()
})

test.each(['', '{', '[]', '{"auths":[]}', '{"auths":{"a":{"auth":5}}}', '{"auths":{"a":{"auth":"no colon"}}}'])(
  'a file that is not understood has none: %s',
  (text) => expect(registryCredentials([file(text)])('a')).toBeUndefined(),
)

test('are looked for where docker, podman and skopeo put them', () => {
  const env: Readonly<Record<string, string>> = {
    REGISTRY_AUTH_FILE: '/a/auth.json',
    DOCKER_CONFIG: '/d',
    XDG_RUNTIME_DIR: '',
  }
  expect(authFiles((name) => env[name], '/home/me')).toEqual([
    '/a/auth.json',
    '/d/config.json',
    '/home/me/.config/containers/auth.json',
    '/home/me/.docker/config.json',
  ])
})
