import type { ReveError } from '@reve/base'
import type { Tool } from '@reve/harness'
import { MicroVmError } from '@reve/sandbox-microvm'
import { expect, test } from 'vitest'
import { AgentError } from '../src/errors.ts'
import { refusing } from '../src/refusal.ts'
import { toolContext } from './guest-vm.ts'

const failing = (error: unknown): Tool => ({
  name: 'bash',
  description: '',
  parameters: { type: 'object' },
  replay: 'never',
  run: async () => {
    throw error
  },
})

test.each([
  ['no backend', new MicroVmError('no_backend', 'nothing boots'), true],
  [
    'through another error',
    new AgentError('io', 'a tool failed', { cause: new MicroVmError('boot_failed', 'x') }),
    true,
  ],
  ['a VM that was lost', new MicroVmError('guest_lost', 'x'), false],
  ['a VM of another process', new MicroVmError('busy', 'x'), false],
  ['a mistake', new Error('x'), false],
])('a tool that fails of %s', async (_, error, isRefused) => {
  const refusals: ReveError[] = []
  const tool = refusing(failing(error), async (refusal) => void refusals.push(refusal))
  await expect(tool.run({}, toolContext())).rejects.toBe(error)
  expect(refusals.map(({ name }) => name)).toEqual(isRefused ? ['MicroVmError'] : [])
})
