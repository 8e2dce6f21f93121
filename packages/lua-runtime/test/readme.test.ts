import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test('the example of the README runs', async () => {
  const run = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect(run).toMatchObject({ code: 0, stderr: '', stdout: "ran: echo hello 'world'\n\n" })
})
