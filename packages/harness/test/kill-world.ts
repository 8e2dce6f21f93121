import { createScriptedModel, type Model, type ScriptedCall, type ScriptedTurn } from '@reve/providers/model'
import type { HarnessOptions, Tool } from '@reve/harness'
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs'

/*
 * What the processes that are killed, and the one that kills them, have in common: jobs, tools, the model's script.
 */

/** What a child is told to do, one JSON line on its standard input. `life` counts the processes of one session. */
export type Job = {
  readonly mode: 'work' | 'finish' | 'hold' | 'exit'
  readonly file: string
  readonly effects: string
  readonly seed: number
  readonly life: number
  /** Of the tool that holds. */
  readonly replay: Tool['replay']
}

/** What a child tells, one JSON line each on its standard output, when the promise in question has resolved. */
export type Told =
  | { readonly type: 'ready' | 'open' | 'inside' | 'finished' }
  | { readonly type: 'accepted'; readonly how: 'prompt' | 'steer' | 'follow_up' | 'next_run'; readonly text: string }
  | { readonly type: 'returned'; readonly texts: readonly string[] }
  | { readonly type: 'ended'; readonly lane: string; readonly outcome: string }

/** The lanes at work. */
export const lanes = ['main', 'side'] as const

/** Numbers from 0 up to 1 that a seed decides (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Makes an effect in the world, for good: the key of its call is in the file when this returns. */
export function makeEffect(effects: string, key: string): void {
  const fd = openSync(effects, 'a')
  try {
    writeSync(fd, `${key}\n`)
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** A tool whose effect must not happen twice, and one that only looks. `random` says how long they take. */
export function toolsOf(effects: string, random: () => number): readonly Tool[] {
  const parameters = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
  return [
    {
      name: 'effect',
      description: 'does something for good',
      parameters,
      replay: 'never',
      run: async (_, { idempotencyKey, signal }) => {
        await pause(random() * 6)
        if (signal.aborted) throw new Error('stopped before it')
        makeEffect(effects, idempotencyKey)
        await pause(random() * 6)
        return { content: `done ${idempotencyKey}` }
      },
    },
    {
      name: 'look',
      description: 'looks',
      parameters,
      replay: 'safe',
      run: async ({ n }) => {
        await pause(random() * 6)
        return { content: `saw ${JSON.stringify(n)}` }
      },
    },
  ]
}

/** A model that talks for longer than any child lives: two turns with calls, one without, and so on; some fail at first. */
export function talkativeModel(seed: number): Model {
  const random = randomOf(seed)
  const turns = Array.from({ length: 2000 }, (_, n): ScriptedTurn => {
    const calls = Array.from({ length: n % 3 === 2 ? 0 : Math.ceil(random() * 3) }, (): ScriptedCall => ({
      name: random() < 0.6 ? 'effect' : 'look',
      arguments: { n },
    }))
    return {
      text: `turn ${n}: ${'word '.repeat(Math.floor(random() * 20))}`,
      ...(random() < 0.3 && { reasoning: `because ${n}` }),
      calls,
      chunk: 10,
      delayMs: Math.floor(random() * 6),
      usage: { input: 10, output: n },
      ...(random() < 0.2 && { fail: { code: 'overloaded', times: 1, afterText: random() < 0.3 } }),
    }
  })
  return createScriptedModel({ turns })
}

/** The same model where it is not asked. */
export const silentModel = createScriptedModel({ turns: [] })

/** What all harnesses of these tests have in common. */
export const harnessOptions = {
  system: 'Be brief.',
  // Attempts are counted across processes: here many of them are killed, and no run is to fail of that.
  limits: { abortGraceMs: 50, retries: { attempts: 1000, baseMs: 4, capMs: 10 } },
} as const satisfies Partial<HarnessOptions>
