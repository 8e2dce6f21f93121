import { expect, test } from 'vitest'
import { configuration, ConfigurationError, rootOf, strayVariables, variables } from '../src/environment.ts'
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
    gitCredentials: undefined,
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
  ['KC_ALLOWED_HOSTS', 'kc.example, https://kc.example'],
  ['KC_ALLOWED_HOSTS', 'kc.example:443'],
])('%s=%s is refused by its name', (name, value) => {
  expect(() => configuration({ [name]: value }, {})).toThrow(ConfigurationError)
  expect(() => configuration({ [name]: value }, {})).toThrow(name)
})

test('kc help env lists every variable', () => {
  for (const name of Object.keys(variables)) expect(helpText('env')).toContain(name)
})

test('a wrong flag is refused by the name of the flag', () => {
  expect(() => configuration({ KC_PORT: '1' }, { port: 'http' })).toThrow('--port is "http"')
})

test('host names are taken as they stand in a request', () => {
  expect(configuration({ KC_ALLOWED_HOSTS: 'kc.example, [fd00::1] ,' }, {}).allowedHosts).toEqual([
    'kc.example',
    '[fd00::1]',
  ])
})

test('a variable that is none is named, with the one that was meant', () => {
  expect(strayVariables({ KC_DRAIN_SECOND: '1', KC_PORT: '1', PATH: '/' })).toEqual([
    'KC_DRAIN_SECOND is no variable of kc and has no effect (did you mean "KC_DRAIN_SECONDS"?)',
  ])
})
