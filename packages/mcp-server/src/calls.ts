import { isReveError, messageOf } from '@reve/base'
import type { ActionContext } from './action.ts'
import type { CallOptions, CallResult, Computer } from './computer.ts'
import { ComputerError } from './errors.ts'
import { createHide, cutText, jsonBytes, loggedArguments } from './event-arguments.ts'
import type { Event } from './events.ts'
import { families } from './families/index.ts'
import { bindCall, targetOf } from './family.ts'
import type { Seat } from './seats.ts'
import { bounded } from './text.ts'

type Parts = Pick<ActionContext, 'store' | 'runner' | 'git' | 'seats' | 'events'> & {
  readonly now: () => number
  /** Values that no event may hold. */
  readonly secrets: readonly string[]
}

/** Characters of a refusal, in which a client's own text may stand; an event keeps the beginning. */
const refusalCharacters = 8000
const errorCharacters = 2000

/** Answers calls: each is bound to its action, run, and recorded as one event before its answer is given. */
export function answerCalls(parts: Parts): {
  readonly call: Computer['call']
  /** Cancels what runs, refuses what comes, and resolves when every call has its event. */
  readonly stop: () => Promise<void>
} {
  const ending = new AbortController()
  const running = new Set<Promise<CallResult>>()
  return {
    call: async (seat, family, args, options) => {
      if (ending.signal.aborted) return { text: 'the computer is shutting down', isError: true }
      const answer = answerCall(parts, seat, family, args, {
        ...options,
        signal: AbortSignal.any([options.signal, ending.signal]),
      })
      running.add(answer)
      try {
        return await answer
      } finally {
        running.delete(answer)
      }
    },
    stop: async () => {
      ending.abort()
      await Promise.allSettled(running)
    },
  }
}

async function answerCall(
  parts: Parts,
  seat: Seat,
  familyName: string,
  args: unknown,
  { signal, progress = () => undefined, token = '' }: CallOptions,
): Promise<CallResult> {
  const { store, events, now, secrets } = parts
  const started = performance.now()
  const hide = createHide(token, ...secrets)
  const family = families.find(({ name }) => name === familyName)
  const target = family === undefined ? undefined : targetOf(family, args)

  /** The row of this call, whatever it came to. */
  const eventOf = ({ text, isError }: CallResult): Event => {
    const logged = loggedArguments(args, target?.action?.logged ?? new Set(['action']), hide)
    return {
      seat: seat.name,
      tool: hide(target?.tool ?? cutText(familyName, 64)).toWellFormed(),
      arguments: logged.json,
      argumentsCut: logged.cut,
      ok: !isError,
      durationMs: performance.now() - started,
      bytesIn: jsonBytes(args),
      bytesOut: Buffer.byteLength(text),
      error: isError ? cutText(hide(text), errorCharacters).toWellFormed() : null,
      at: new Date(now()).toISOString(),
    }
  }

  /** A long call whose effect is one transaction wrote its event there. */
  let recorded = false
  const recordWithEffect = (answer: string): void => {
    events.insert(eventOf({ text: answer, isError: false }))
    recorded = true
  }
  try {
    if (family === undefined) {
      const names = families.map(({ name }) => name).join(', ')
      throw new ComputerError('bad_call', `there is no family "${cutText(familyName, 64)}"; there are ${names}`)
    }
    const bound = bindCall(family, args)
    const context = { ...parts, seat, signal, progress, recordWithEffect }
    if (bound.effect === 'write') {
      // The effect and its event are one transaction: neither is there without the other.
      return store.transaction(() => {
        const outcome = { text: bounded(bound.run(context), 'Ask for less at once.'), isError: false }
        events.insert(eventOf(outcome))
        return outcome
      })
    }
    const outcome = { text: bounded(await bound.run(context), 'Ask for less at once.'), isError: false }
    if (!recorded) await events.record(eventOf(outcome))
    return outcome
  } catch (error) {
    const outcome = { text: cutText(refusalOf(error, signal), refusalCharacters), isError: true }
    await events.record(eventOf(outcome))
    return outcome
  }
}

/** A refusal says what it says; anything else is a defect, and is said to be one. */
function refusalOf(error: unknown, signal: AbortSignal): string {
  if (isReveError(error)) return error.hint === undefined ? error.message : `${error.message} (${error.hint})`
  return signal.aborted ? 'cancelled' : `internal error: ${messageOf(error)}`
}
