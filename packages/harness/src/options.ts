import { createIdSource } from '@reve/base'
import type { Model, Thinking } from '@reve/providers/model'
import type { SessionLog } from '@reve/session-log'
import { randomBytes } from 'node:crypto'
import * as v from 'valibot'
import type { Redact } from './clean.ts'
import { HarnessError } from './errors.ts'
import type { Hooks } from './hooks.ts'
import type { Budget } from './ledger.ts'
import type { LoopLimits } from './loop-guard.ts'
import { defaultImageChars } from './settle.ts'
import type { Tool } from './tool.ts'

/** The world outside of log, model and tools, so that a test can stand in for it. */
export type Effects = {
  /** Milliseconds since 1970. */
  readonly now: () => number
  /** A new id, of an entry or a run, that starts with the prefix (the log names the records itself). */
  readonly newId: (prefix: 'e_' | 'run_') => string
  /** Resolves after `ms` milliseconds or at the abort, whichever comes first; does not reject. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
  /** 0 up to, not including, 1. */
  readonly random: () => number
}

/** Bounds of a run. */
export type Limits = {
  /** Answers that one run may ask for; default 100. Then it ends `failed`, reason `max_turns`. */
  readonly maxTurns: number
  /** Requests for one answer (default 3), and the wait between them: `baseMs` (1 000) doubled each time, jittered, at most `capMs` (60 000); a server's own wish replaces it, up to the same cap. */
  readonly retries: { readonly attempts: number; readonly baseMs: number; readonly capMs: number }
  /** How long an aborted model or tool may take to end by itself; default 5 000 ms. */
  readonly abortGraceMs: number
  /** Characters of text that one tool result may keep in the log; default 100 000. The middle is left out, and said so. */
  readonly toolResultChars: number
  /** Characters of base64 that the images of one tool result may have together; default 5 000 000. An image beyond becomes a note. */
  readonly toolResultImageChars: number
  /** Tools of one answer that may run at once when all of them are `safe`; default 8, 1 for one after the other. */
  readonly parallelTools: number
  /** The same calls with the same results, turn after turn: after `nudgeAfter` (3) of them the model is told so, after `stopAfter` (6) the run ends `failed`, reason `loop`. 0: never. */
  readonly loop: LoopLimits
  /** How deep sub-agents may call sub-agents; default 3. */
  readonly subagentDepth: number
}

/**
 * When and how a conversation is summarised. The automatic way: before a request that would leave less than
 * `reserveTokens` (default 16 384) of the context window, and when the server says that it does not fit. `keepRecentTokens`
 * (20 000) of the newest turns stay as they are. Both are at most a quarter of the window.
 */
export type CompactionOptions = {
  /** Default true; `compact()` works either way. */
  readonly auto?: boolean
  readonly reserveTokens?: number
  readonly keepRecentTokens?: number
}

/** How many of the waiting messages go in at once. */
export type QueueMode = 'all' | 'one_at_a_time'

/** Options of `createHarness`. */
export type HarnessOptions = {
  /** Open for writing; stays the caller's to close. One harness a log. */
  readonly log: SessionLog
  /** A function is read at each run's start. */
  readonly model: Model | (() => Model)
  /** A function is read at each run's start, once there is a system prompt, and at recovery. */
  readonly tools: readonly Tool[] | (() => readonly Tool[])
  /** The system prompt; a function is read at each run's start. */
  readonly system: string | (() => string | Promise<string>)
  readonly thinking?: Thinking
  readonly effects?: Partial<Effects>
  readonly limits?: Partial<Omit<Limits, 'retries' | 'loop'>> & {
    readonly retries?: Partial<Limits['retries']>
    readonly loop?: Partial<LoopLimits>
  }
  /** Called in this order; see `Hooks`. A function is asked each time that hooks are called. */
  readonly hooks?: readonly Hooks[] | (() => readonly Hooks[])
  readonly compaction?: CompactionOptions
  /** Default `all` for both. */
  readonly queue?: { readonly steer?: QueueMode; readonly followUp?: QueueMode }
  /** What may be spent; checked before each request, so that the last one may go beyond. Then the run ends `failed`, reason `budget`. */
  readonly budget?: Budget
  /** Replaces known secret values in every text before it is appended or emitted. */
  readonly redact?: Redact
}

/** The real world, with what the options replace. */
export function effectsOf(options: HarnessOptions): Effects {
  const now = options.effects?.now ?? Date.now
  return {
    now,
    newId: createIdSource({ now, random: (count) => randomBytes(count) }),
    sleep,
    random: Math.random,
    ...options.effects,
  }
}

const fromZero = (what: string) => v.exactOptional(v.custom<number>((n) => Number.isFinite(n) && Number(n) >= 0, what))
const wholeFrom = (least: number) =>
  v.exactOptional(
    v.custom<number>((n) => Number.isSafeInteger(n) && Number(n) >= least, `a whole number from ${least} on`),
  )
const ms = fromZero('milliseconds, a finite number from 0 on')
const amount = fromZero('a finite number from 0 on')
const budgetLimit = v.exactOptional(v.object({ tokens: amount, usd: amount }, 'an object'))
const queueMode = v.exactOptional(v.picklist(['all', 'one_at_a_time'], '"all" or "one_at_a_time"'))

/** The options that are numbers, and the modes: what else there is shows at its first use. */
const checkedOptions = v.object({
  limits: v.exactOptional(
    v.object(
      {
        maxTurns: wholeFrom(1),
        retries: v.exactOptional(v.object({ attempts: wholeFrom(1), baseMs: ms, capMs: ms }, 'an object')),
        abortGraceMs: ms,
        toolResultChars: wholeFrom(1),
        toolResultImageChars: wholeFrom(0),
        parallelTools: wholeFrom(1),
        loop: v.exactOptional(v.object({ nudgeAfter: wholeFrom(0), stopAfter: wholeFrom(0) }, 'an object')),
        subagentDepth: wholeFrom(0),
      },
      'an object',
    ),
  ),
  compaction: v.exactOptional(
    v.object(
      { auto: v.exactOptional(v.boolean('true or false')), reserveTokens: amount, keepRecentTokens: amount },
      'an object',
    ),
  ),
  queue: v.exactOptional(v.object({ steer: queueMode, followUp: queueMode }, 'an object')),
  budget: v.exactOptional(v.object({ run: budgetLimit, day: budgetLimit }, 'an object')),
})

/** Throws HarnessError `invalid_options` for a number that cannot be meant, or a mode that there is not. */
export function checkOptions(options: HarnessOptions): void {
  const read = v.safeParse(checkedOptions, options, { abortEarly: true })
  if (read.success) return
  const issue = read.issues[0]
  const name = v.getDotPath(issue) ?? 'options'
  throw new HarnessError('invalid_options', `the option ${name} is ${issue.received.slice(0, 100)}`, {
    hint: `give it ${issue.message}, or leave it out`,
  })
}

/** The limits, with defaults. Throws as {@link checkOptions}. */
export function limitsOf(options: HarnessOptions): Limits {
  checkOptions(options)
  return {
    maxTurns: 100,
    abortGraceMs: 5000,
    toolResultChars: 100_000,
    toolResultImageChars: defaultImageChars,
    parallelTools: 8,
    subagentDepth: 3,
    ...options.limits,
    loop: { nudgeAfter: 3, stopAfter: 6, ...options.limits?.loop },
    retries: { attempts: 3, baseMs: 1000, capMs: 60_000, ...options.limits?.retries },
  }
}

const longestTimer = 2 ** 31 - 1

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    // What a timer cannot hold would fire at once.
    const timer = setTimeout(end, Math.min(ms, longestTimer))
    signal.addEventListener('abort', end)
  })
}
