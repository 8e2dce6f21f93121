import { describe, expect, test } from 'vitest'
import { toolboxOf } from '../src/calls.ts'
import { effectsOf } from '../src/options.ts'
import { createHarness, type HarnessOptions, type Tool } from '../src/index.ts'
import { createScriptedModel } from '@reve/providers/model'
import { echoTool, newLog } from './support.ts'

describe('options of a harness', () => {
  test.each<[name: string, given: unknown, takes: string]>([
    ['limits.maxTurns', { limits: { maxTurns: 0 } }, 'from 1 on'],
    ['limits.maxTurns', { limits: { maxTurns: 1.5 } }, 'from 1 on'],
    ['limits.maxTurns', { limits: { maxTurns: undefined } }, 'from 1 on'],
    ['limits.retries.attempts', { limits: { retries: { attempts: 0 } } }, 'from 1 on'],
    ['limits.retries.baseMs', { limits: { retries: { baseMs: -1 } } }, 'from 0 on'],
    ['limits.retries.capMs', { limits: { retries: { capMs: Infinity } } }, 'finite'],
    ['limits.abortGraceMs', { limits: { abortGraceMs: Number.NaN } }, 'finite'],
    ['limits.toolResultChars', { limits: { toolResultChars: 0 } }, 'from 1 on'],
    ['limits.toolResultImageChars', { limits: { toolResultImageChars: -1 } }, 'from 0 on'],
    ['limits.parallelTools', { limits: { parallelTools: '8' } }, 'from 1 on'],
    ['limits.subagentDepth', { limits: { subagentDepth: -1 } }, 'from 0 on'],
    ['limits.loop.nudgeAfter', { limits: { loop: { nudgeAfter: 0.5 } } }, 'from 0 on'],
    ['limits.loop.stopAfter', { limits: { loop: { stopAfter: -2 } } }, 'from 0 on'],
    ['compaction.reserveTokens', { compaction: { reserveTokens: -1 } }, 'from 0 on'],
    ['compaction.keepRecentTokens', { compaction: { keepRecentTokens: Number.NaN } }, 'from 0 on'],
    ['budget.run.tokens', { budget: { run: { tokens: -1 } } }, 'from 0 on'],
    ['budget.day.usd', { budget: { day: { usd: Number.NaN } } }, 'from 0 on'],
    ['queue.steer', { queue: { steer: 'some' } }, 'one_at_a_time'],
  ])('%s cannot be meant: %j', async (name, given, takes) => {
    const log = await newLog()
    const base: HarnessOptions = { log, model: createScriptedModel({ turns: [] }), tools: [], system: '' }
    const options: HarnessOptions = Object.assign(base, given)
    expect(() => createHarness(options)).toThrow(
      expect.objectContaining({
        name: 'HarnessError',
        code: 'invalid_options',
        message: expect.stringContaining(`${name} is `),
        hint: expect.stringContaining(takes),
      }),
    )
  })

  test('the least of each is taken', async () => {
    const log = await newLog()
    createHarness({
      log,
      model: createScriptedModel({ turns: [] }),
      tools: [],
      system: '',
      limits: {
        maxTurns: 1,
        retries: { attempts: 1, baseMs: 0, capMs: 0 },
        abortGraceMs: 0,
        toolResultChars: 1,
        toolResultImageChars: 0,
        parallelTools: 1,
        loop: { nudgeAfter: 0, stopAfter: 0 },
        subagentDepth: 0,
      },
      compaction: { auto: false, reserveTokens: 0, keepRecentTokens: 0 },
      queue: { steer: 'all', followUp: 'one_at_a_time' },
      budget: { run: { tokens: 0, usd: 0 }, day: {} },
    })
  })

  test('a sleep longer than a timer holds does not end at once', async () => {
    const log = await newLog()
    const { sleep } = effectsOf({ log, model: createScriptedModel({ turns: [] }), tools: [], system: '' })
    const stop = new AbortController()
    const slept = sleep(2 ** 40, stop.signal).then(() => 'slept')
    // A timer that overflows is due after 1 ms, before this one.
    expect(await Promise.race([slept, new Promise((resolve) => setTimeout(resolve, 20, 'waits'))])).toBe('waits')
    stop.abort()
    expect(await slept).toBe('slept')
  })
})

describe('tools', () => {
  const odd = (part: { readonly [key: string]: unknown }): Tool => Object.assign(echoTool(), part)

  test.each<[what: string, part: { readonly [key: string]: unknown }, says: RegExp]>([
    ['no name', { name: '' }, /no name/],
    ['a name that is no text', { name: 7 }, /no name/],
    ['a name with a space', { name: 'read file' }, /"read file"/],
    ['a name with a control character', { name: 'read\u001b' }, /\\u001b/],
    ['a name that is too long', { name: 'a'.repeat(129) }, /name of the tool/],
    ['an unknown replay', { replay: 'sometimes' }, /"echo" does not say/],
    ['no parameters', { parameters: undefined }, /"echo" .* not an object/],
    ['parameters that are a list', { parameters: [] }, /"echo" .* not an object/],
    ['a pattern that is none', { parameters: { properties: { a: { pattern: '(' } } } }, /"echo" .*\(/],
    ['a pattern of names that is none', { parameters: { patternProperties: { '[': {} } } }, /"echo" /],
    [
      'a reference to nothing',
      { parameters: { properties: { a: { $ref: '#/$defs/b' } } } },
      /nothing is at "#\/\$defs\/b"/,
    ],
    ['what JSON cannot say', { parameters: { const: 1n } }, /"echo" /],
  ])('%s', (_what, part, says) => {
    expect(() => toolboxOf([odd(part)])).toThrow(
      expect.objectContaining({ name: 'HarnessError', code: 'invalid_tools', message: expect.stringMatching(says) }),
    )
  })

  test('names of all kinds, and schemas that say little or refer to themselves, are taken', () => {
    const tree = { $ref: '#/$defs/tree', $defs: { tree: { type: 'array', items: { $ref: '#/$defs/tree' } } } }
    const named = { properties: { pattern: { type: 'string' }, a: { default: { pattern: '(' } } } }
    const tools = [
      odd({ name: 'mcp__files.read-all:1', parameters: {} }),
      odd({ name: '読む', parameters: tree }),
      odd({ name: 'a'.repeat(128), parameters: Object.freeze(named) }),
    ]
    expect([...toolboxOf(tools).keys()]).toEqual(tools.map(({ name }) => name))
    // Looking at them left nothing behind.
    expect(Object.getOwnPropertyNames(tree)).toEqual(['$ref', '$defs'])
  })
})
