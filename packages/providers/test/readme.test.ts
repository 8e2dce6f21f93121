import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { runReadmeExample } from '../../../scripts/readme-example.ts'
import { loadModels } from '../src/index.ts'

const readme = new URL('../README.md', import.meta.url)

test('the example runs as it stands', async () => {
  const { code, stdout, stderr } = await runReadmeExample(readme)
  expect(stderr).toBe('')
  expect(code).toBe(0)
  expect(stdout.split('\n').slice(0, 3)).toEqual(['I list', ' the f', 'iles.'])
  expect(stdout).toContain('"stopReason":"toolUse"')
})

test('the models.yml is right', async () => {
  const yaml = /^```yaml\n([\s\S]*?)^```$/m.exec(await readFile(readme, 'utf8'))?.[1] ?? ''
  const { models, problems } = await loadModels(yaml, {
    file: 'models.yml',
    env: () => 'x',
    readFile: async () => '-----BEGIN CERTIFICATE-----',
  })
  expect(problems).toEqual([])
  expect(models.map(({ id }) => id)).toEqual(['demo/hello', 'openai/gpt-5.6-luna'])
})
