import { createMicroVm } from '@reve/sandbox-microvm'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { guestTools } from '../src/guest-tools.ts'

const folder = mkdtempSync(join(tmpdir(), 'guest-tools-'))
const tools = guestTools(
  createMicroVm(
    {
      name: 'unused',
      stateDir: join(folder, 'vm'),
      image: { ref: 'debian:trixie-slim', packages: [] },
      cpus: 1,
      memoryMiB: 512,
      diskMiB: 4096,
      mounts: [],
      workdir: '/workspace',
      env: {},
      egress: { kind: 'none' },
      bootstrap: [],
      idleStopMs: 1000,
    },
    { cacheDir: join(folder, 'cache'), runtimeDir: folder },
  ),
)

test('those that only read are safe, and no other', () => {
  expect(Object.fromEntries(tools.map(({ name, replay }) => [name, replay]))).toEqual({
    bash: 'never',
    read: 'safe',
    write: 'never',
    edit: 'never',
    ls: 'safe',
    glob: 'safe',
    grep: 'safe',
    task: 'never',
  })
})

test('each says what every argument is, and takes no other', () => {
  for (const { name, description, parameters } of tools) {
    expect([name, parameters['type'], parameters['additionalProperties']]).toEqual([name, 'object', false])
    expect(description.length).toBeGreaterThan(15)
    for (const property of Object.values(parameters['properties'] ?? {})) {
      expect(property).toMatchObject({ type: expect.any(String), description: expect.any(String) })
    }
  }
  // They are sent with each request.
  expect(
    JSON.stringify(tools.map(({ name, description, parameters }) => ({ name, description, parameters }))).length,
  ).toBeLessThan(7000)
})
