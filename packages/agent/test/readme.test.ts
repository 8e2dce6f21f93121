import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test("the README's example runs as it says", async () => {
  expect(await runReadmeExample(new URL('../README.md', import.meta.url))).toMatchObject({
    code: 0,
    stdout: 'completed Hello.\n',
    stderr: '',
  })
})
