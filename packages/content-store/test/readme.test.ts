import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test('the example of the README runs', async () => {
  const { code, stdout, stderr } = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect(stderr).toBe('')
  expect(stdout).toBe('merged: hello.txt, notes.md\n     1\tHello, tree!\n')
  expect(code).toBe(0)
})
