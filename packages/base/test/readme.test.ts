import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test("the README's example runs as it says", async () => {
  const run = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect(run).toMatchObject({ code: 0, stdout: 'retries: 3 true\n' })
})
