import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createHarness, type HarnessOptions } from '@reve/harness'
import {
  createScriptedModel,
  type Model,
  type ModelRequest,
  type ScriptedTurn,
  type ToolResultMessage,
} from '@reve/providers/model'
import { createSession } from '@reve/session-log'
import { expect, test } from 'vitest'
import { taskTool } from '../src/task-tool.ts'

const task = (prompt: string): ScriptedTurn => ({ calls: [{ name: 'task', arguments: { prompt } }] })

const beginning = ({ messages }: ModelRequest): string => {
  const [part] = messages[0]?.role === 'user' ? messages[0].content : []
  return part?.type === 'text' ? part.text : ''
}

/** A model that plays the script of what its conversation began with. */
function byPrompt(scripts: Readonly<Record<string, readonly ScriptedTurn[]>>): Model {
  const models = new Map(Object.entries(scripts).map(([prompt, turns]) => [prompt, createScriptedModel({ turns })]))
  const any = createScriptedModel({ turns: [] })
  return { ...any, stream: (request, options) => (models.get(beginning(request)) ?? any).stream(request, options) }
}

/** Says `go` to a harness whose only tool is `task`; with the results of the calls, as the caller sees them. */
async function run(scripts: Readonly<Record<string, readonly ScriptedTurn[]>>, options: Partial<HarnessOptions> = {}) {
  const file = join(mkdtempSync(join(tmpdir(), 'task-')), 'session.jsonl')
  await using log = await createSession(file, { cwd: 'workspace' })
  const harness = createHarness({ log, model: byPrompt(scripts), tools: [taskTool], system: 'Be brief.', ...options })
  const results: Pick<ToolResultMessage, 'content' | 'isError'>[] = []
  const lanes: string[] = []
  harness.subscribe((event) => {
    if (event.type === 'run_started') lanes.push(event.lane)
    if (event.type === 'tool_finished') results.push(event.result)
  })
  const { outcome, text } = await harness.prompt('go')
  await harness.close()
  const said = results.map(({ content, isError }) => ({
    text: content.map((part) => (part.type === 'text' ? part.text : part.type)).join(''),
    isError,
  }))
  return { outcome, text, said, lanes }
}

test('a sub-agent works on a lane of its own and its last answer is the result', async () => {
  const { outcome, text, said, lanes } = await run({
    go: [task('count'), { text: 'done: 3' }],
    count: [{ text: 'There are 3.' }],
  })
  expect({ outcome, text, said }).toEqual({
    outcome: 'completed',
    text: 'done: 3',
    said: [{ text: 'There are 3.', isError: false }],
  })
  expect(lanes).toEqual(['main', expect.stringMatching(/^sub-/)])
})

test('one that fails, is cut off, or says nothing, is told with its reason; the caller goes on', async () => {
  const { outcome, said } = await run({
    go: [task('fail'), task('say half'), task('say nothing'), { text: 'well' }],
    fail: [{ fail: { code: 'refused', message: 'not this' } }],
    'say half': [{ text: 'The first half', stop: 'length' }],
    'say nothing': [{ text: ' ' }],
  })
  expect(outcome).toBe('completed')
  expect(said).toEqual([
    { text: expect.stringMatching(/^The sub-agent ended .* \(failed, provider_error: .*not this.*\)/), isError: true },
    { text: expect.stringMatching(/^The first half\n\nThe sub-agent ended .*\(completed, length\)/), isError: false },
    { text: expect.stringMatching(/^The sub-agent ended without a whole report \(completed\)/), isError: false },
  ])
})

test('no work is no task, and sub-agents of sub-agents have an end', async () => {
  const { said } = await run(
    { go: [task(' '), task('one'), { text: 'outer' }], one: [task('two'), { text: 'inner' }] },
    { limits: { subagentDepth: 1 } },
  )
  expect(said).toEqual([
    { text: 'task: prompt: must not be empty', isError: true },
    { text: expect.stringContaining('not deeper'), isError: true },
    { text: 'inner', isError: false },
  ])
})
