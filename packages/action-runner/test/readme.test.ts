import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test('the example of the README runs and prints what it says', async () => {
  const { code, stdout, stderr } = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect({ code, stdout, stderr }).toEqual({
    code: 0,
    stdout: "0 hello [ { path: 'greeting.txt', change: 'added' } ]\ntrue\n",
    stderr: '',
  })
})
