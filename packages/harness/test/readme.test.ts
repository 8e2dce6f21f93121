import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'

test('the example of the README runs', async () => {
  const { code, stdout, stderr } = await runReadmeExample(new URL('../README.md', import.meta.url))
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'runs clock\ncompleted It is noon.\n', stderr: '' })
})

test('and so does that of a sub-agent', async () => {
  const { code, stdout, stderr } = await runReadmeExample(new URL('../README.md', import.meta.url), { index: 1 })
  expect(stderr).toBe('')
  const [main, sub, text] = stdout.split('\n')
  expect([main, text]).toEqual(['main starts', 'The lock is in src/lock.ts.'])
  expect(sub).toMatch(/^sub-e_\w+ serves a call$/)
  expect(code).toBe(0)
})
