import { messageOf } from '@reve/base'
import type { ImagePart, JsonObject, Message, TextPart, UserMessage } from '@reve/providers/model'
import * as v from 'valibot'
import type { Environment, Owner } from './environment.ts'
import { tried, withGrace } from './grace.ts'
import { contentSchema, jsonObject, messageSchema, userMessageSchema } from './messages.ts'
import type { CompactionReason } from './records.ts'

/** Of the operation that a hook is called in. It must end soon after `signal` aborts. */
export type HookContext = {
  readonly lane: string
  readonly runId: string
  readonly signal: AbortSignal
  /** The call that the run serves: it is a sub-agent's. */
  readonly parent?: { readonly lane: string; readonly runId: string; readonly toolCallId: string }
}

type Awaitable<T> = T | Promise<T>
/** What a hook gives back: a change, or nothing. */
type HookResult<T> = Awaitable<T | undefined | void>

/**
 * Code that stands in the way of a run: awaited, in the order in which the hooks were given, each sees what those before it
 * changed. One that throws (or gives back something of the wrong shape) is reported as `hook_failed` and skipped, but for
 * `beforeTool`: there the call is blocked. Hooks are not recorded; what they decide is.
 */
export type Hooks = {
  /** For reports. */
  readonly name?: string
  /**
   * The prompt is durable, nothing was asked yet. `messages` are added after the prompt, `system` replaces the system
   * prompt of this run, `reject` ends the run as `rejected`.
   */
  readonly beforeRun?: (
    input: HookContext & {
      /** Absent in a run that continues. */
      readonly prompt?: UserMessage
      readonly system: string
    },
  ) => HookResult<{
    readonly messages?: readonly (string | UserMessage)[]
    readonly system?: string
    readonly reject?: string
  }>
  /**
   * A call whose arguments fit. New arguments are checked again; what is recorded and run is what comes out here. A call
   * that recovery makes again was decided when it was recorded, and is not asked about again.
   */
  readonly beforeTool?: (
    input: HookContext & {
      readonly toolCallId: string
      readonly toolName: string
      readonly arguments: JsonObject
    },
  ) => HookResult<{ readonly arguments: JsonObject } | { readonly block: string; readonly terminate?: boolean }>
  /** A tool has ended, its result is not yet kept. Not called for a tool that an abort interrupted. */
  readonly afterTool?: (
    input: HookContext & {
      readonly toolCallId: string
      readonly toolName: string
      readonly arguments: JsonObject
      readonly content: readonly (TextPart | ImagePart)[]
      readonly isError: boolean
      readonly terminate: boolean
    },
  ) => HookResult<{
    readonly content?: string | readonly (TextPart | ImagePart)[]
    readonly isError?: boolean
    readonly terminate?: boolean
  }>
  /** The run would end well. `followUp` is said to it instead (the last hook's counts). */
  readonly beforeRunEnd?: (
    input: HookContext & { readonly text: string; readonly messages: readonly Message[] },
  ) => HookResult<{ readonly followUp: string | UserMessage }>
  /** The conversation would be summarised. The first that declines, or brings a summary of its own, decides. */
  readonly beforeCompaction?: (
    input: HookContext & {
      readonly reason: CompactionReason
      /** What the summary will stand for; an earlier summary apart. */
      readonly messages: readonly Message[]
      readonly previousSummary?: string
      readonly tokens: number
    },
  ) => HookResult<{ readonly decline: string } | { readonly summary: string }>
  /** What the model is about to see. The change holds for this one request and is not kept. */
  readonly transformContext?: (
    input: HookContext & { readonly messages: readonly Message[] },
  ) => HookResult<{ readonly messages: readonly Message[] }>
}

type HookName = Exclude<keyof Hooks, 'name'>

const spoken = v.union([v.string(), userMessageSchema])
// The trust edge to code that somebody else wrote: what comes back ends up in the log.
const outputSchemas = {
  beforeRun: v.object({
    messages: v.exactOptional(v.array(spoken)),
    system: v.exactOptional(v.string()),
    reject: v.exactOptional(v.string()),
  }),
  beforeTool: v.union([
    v.object({ block: v.string(), terminate: v.exactOptional(v.boolean()) }),
    v.object({ arguments: jsonObject }),
  ]),
  afterTool: v.object({
    content: v.exactOptional(v.union([v.string(), contentSchema])),
    isError: v.exactOptional(v.boolean()),
    terminate: v.exactOptional(v.boolean()),
  }),
  beforeRunEnd: v.object({ followUp: spoken }),
  beforeCompaction: v.union([v.object({ decline: v.string() }), v.object({ summary: v.string() })]),
  transformContext: v.object({ messages: v.array(messageSchema) }),
} as const

/** What a hook of that name may say. */
export type HookOutput<N extends HookName> = v.InferOutput<(typeof outputSchemas)[N]>

/** One hook's answer: nothing, a change, or why there is none. */
export type HookAnswer<N extends HookName> =
  | { readonly type: 'silent' }
  | { readonly type: 'said'; readonly output: HookOutput<N> }
  | { readonly type: 'failed'; readonly message: string }

/** Of the operation that calls hooks. */
export type Hooked = Owner & {
  readonly environment: Environment
  readonly signal: AbortSignal
  readonly parent?: HookContext['parent'] | undefined
}

/**
 * Calls the hooks of one name, one after the other. `next` takes each answer and gives the input of the following hook, or
 * undefined to stop there. A failure was reported by then.
 */
export async function callHooks<N extends HookName>(
  run: Hooked,
  name: N,
  input: HookInput<N>,
  next: (answer: HookAnswer<N>, input: HookInput<N>) => HookInput<N> | undefined,
): Promise<void> {
  const { environment, lane, runId, signal } = run
  let current = input
  for (const hooks of environment.hooks()) {
    if (hooks[name] === undefined) continue
    const answer = await answerOf(run, hooks, name, current)
    if (answer.type === 'failed') {
      environment.emitter.emit(lane, runId, { type: 'hook_failed', hook: name, message: answer.message })
    }
    const following = next(answer, current)
    if (following === undefined || signal.aborted) return
    current = following
  }
}

/** What a hook of that name is told, without the context that all are told. */
export type HookInput<N extends HookName> = Omit<Parameters<NonNullable<Hooks[N]>>[0], keyof HookContext>

async function answerOf<N extends HookName>(
  run: Hooked,
  hooks: Hooks,
  name: N,
  input: HookInput<N>,
): Promise<HookAnswer<N>> {
  const { environment, lane, runId, signal, parent } = run
  const { limits, effects, cleaner } = environment
  const who = hooks.name === undefined ? name : `${name} of ${hooks.name}`
  const failed = (message: string): HookAnswer<N> => ({ type: 'failed', message: cleaner.text(`${who}: ${message}`) })
  // The map of hooks ties name, input and output together; a union over N cannot say so.
  const hook = hooks[name] as (given: HookInput<N> & HookContext) => Awaitable<unknown>
  const ended = await withGrace(
    // A copy: what a hook writes into it changes neither the log nor what the next one sees.
    tried(async () =>
      hook.call(hooks, { ...structuredClone(input), lane, runId, signal, ...(parent !== undefined && { parent }) }),
    ),
    signal,
    limits.abortGraceMs,
    effects.sleep,
  )
  if (ended.type === 'left') return failed('it did not end after the abort')
  if (ended.value.type === 'threw') return failed(messageOf(ended.value.error))
  const output = ended.value.output
  if (output === undefined || output === null) return { type: 'silent' }
  const read = v.safeParse<(typeof outputSchemas)[N]>(outputSchemas[name], output, { abortEarly: true })
  if (read.success) return { type: 'said', output: read.output }
  const issue = read.issues[0]
  return failed(
    `it gave back something else than a change: ${issue === undefined ? 'wrong shape' : `${v.getDotPath(issue) ?? 'output'}: ${issue.message}`}`,
  )
}

/** A message that a hook or a caller may give as its text alone. */
export function asUserMessage(spoken: string | UserMessage): UserMessage {
  return typeof spoken === 'string' ? { role: 'user', content: [{ type: 'text', text: spoken }] } : spoken
}
