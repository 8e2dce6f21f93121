import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test('the example of the README runs', async () => {
  const { code, stdout, stderr } = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect(stderr).toBe('')
  expect(stdout).toBe('1 Greeting nothing to mend\n1 went along\n')
  expect(code).toBe(0)
})
