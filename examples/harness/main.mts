import { readFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { createHarness, type Tool } from '@reve/harness'
import { createScriptedModel, loadModels } from '@reve/providers'
import { openSession } from '@reve/session-log'

const { values, positionals } = parseArgs({ options: { model: { type: 'string' } }, allowPositionals: true })
const stock: Tool = {
  name: 'stock',
  description: 'How many pieces of an article are in the shop',
  parameters: { type: 'object', properties: { article: { type: 'string' } }, required: ['article'] },
  replay: 'safe', // it only looks: after a crash it may be asked again
  run: async ({ article }) => ({ content: article === 'lamp' ? '3' : '0' }),
}
const look = { calls: [{ name: 'stock', arguments: { article: 'lamp' } }] }
const scripted = createScriptedModel({ turns: [look, { text: 'There are 3 lamps.' }, { text: 'Still 3.' }] })
const file = new URL('models.yml', import.meta.url)
const models = await loadModels(await readFile(file, 'utf8'), { file: 'models.yml', env: (name) => process.env[name] })

await using log = await openSession('session.jsonl', { create: { cwd: '.' } })
const model = values.model === undefined ? scripted : models.resolve(values.model)
const harness = createHarness({ log, model, tools: [stock], system: 'You keep a small shop. Be brief.' })
harness.subscribe((event) => {
  if (event.type === 'tool_started') console.log(`(${event.toolName} ${JSON.stringify(event.arguments)})`)
})
for (const { lane, canContinue } of (await harness.recover()).lanes) if (canContinue) await harness.continue({ lane })
const { outcome, text, error } = await harness.prompt(positionals.join(' ') || 'How many lamps are there?')
console.log(text || `${outcome}: ${error?.message ?? 'no answer'}`)
await harness.close()
