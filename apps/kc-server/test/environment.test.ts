import { expect, test } from 'vitest'
import { configuration, ConfigurationError, rootOf, variables } from '../src/environment.ts'
import { helpText } from '../src/help.ts'

test('has a default for everything', () => {
  expect(configuration({ XDG_DATA_HOME: '/data' }, {})).toMatchObject({
    root: '/data/kc',
    host: '127.0.0.1',
    port: 7333,
    allowedHosts: [],
    drainMs: 10_000,
    minFreeBytes: 0,
    identity: { name: 'kc', email: 'kc@localhost' },
  })
})

test('a flag stands above the environment', () => {
  expect(configuration({ KC_PORT: '1', KC_HOST: '0.0.0.0' }, { port: '2', host: '127.0.0.1' })).toMatchObject({
    port: 2,
    host: '127.0.0.1',
  })
  expect(rootOf({ KC_ROOT: '/env' }, '/flag')).toBe('/flag')
})

test.each([
  ['KC_PORT', '70000'],
  ['KC_PORT', 'http'],
  ['KC_PORT', '1.5'],
  ['KC_DRAIN_SECONDS', '-1'],
  ['KC_MIN_FREE_GB', 'ten'],
  ['KC_ACTION_USER', 'nobody-of-this-name'],
  ['KC_GIT_IDENTITY', 'no address'],
])('%s=%s is refused by its name', (name, value) => {
  expect(() => configuration({ [name]: value }, {})).toThrow(ConfigurationError)
  expect(() => configuration({ [name]: value }, {})).toThrow(name)
})

test('kc help env lists every variable', () => {
  for (const name of Object.keys(variables)) expect(helpText('env')).toContain(name)
})
