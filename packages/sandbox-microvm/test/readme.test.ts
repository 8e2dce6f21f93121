import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'
import { whyNoVm } from './helpers.ts'

const why = await whyNoVm()

test.skipIf(why !== undefined)('the example of the README runs', async () => {
  const { code, stdout, stderr } = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect(stderr).toBe('')
  expect(stdout).toBe('made in the guest\n0 Linux\n')
  expect(code).toBe(0)
})
