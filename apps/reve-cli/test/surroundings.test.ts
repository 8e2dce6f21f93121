import { expect, test } from 'vitest'
import { debianHosts, surroundings } from '../src/surroundings.ts'

test("finds the machine's Debian mirrors in both forms of apt's sources, and no other archive", () => {
  const sources = `# deb http://commented.example/debian trixie main
deb [signed-by=/x.gpg] http://one.example/debian trixie main
deb-src http://source.example/debian trixie main
Types: deb
URIs: http://two.example/debian-security https://three.example/debian/
Suites: trixie
deb https://vendor.example/apt stable main
`
  expect(debianHosts(sources)).toEqual(['one.example', 'two.example', 'three.example'])
})

test('keeps to the folders that the environment names, and sockets to a short path', () => {
  const around = surroundings({ XDG_CACHE_HOME: '/somewhere/cache', XDG_RUNTIME_DIR: `/${'long/'.repeat(20)}` })
  expect(around.cacheDir).toBe('/somewhere/cache/reve')
  expect(around.runtimeDir.length).toBeLessThanOrEqual(40)
  expect(surroundings({ XDG_RUNTIME_DIR: '/run/user/1' }).runtimeDir).toBe('/run/user/1/reve')
})
