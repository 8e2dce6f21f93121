import {
  createScriptedModel,
  type JsonObject,
  type Message,
  type Model,
  type ModelRequest,
  type ScriptedTurn,
} from '@reve/providers/model'
import { open } from 'node:fs/promises'
import {
  createSession,
  isEntry,
  type Line,
  openSession,
  type OpenOptions,
  type SessionLog,
  type SessionView,
} from '@reve/session-log'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { messageOfLine } from '../src/messages.ts'
import { summarySystem } from '../src/summary-prompt.ts'
import { createHarness, type Harness, type HarnessEvent, type HarnessOptions, type Tool } from '../src/index.ts'

/** A folder that is gone after the test. */
export async function tempFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'harness-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** A new session in a folder of its own, closed after the test. */
export async function newLog(options: OpenOptions = {}): Promise<SessionLog> {
  const log = await createSession(join(await tempFolder(), 'session.jsonl'), { cwd: 'workspace', ...options })
  onTestFinished(() => log.close())
  return log
}

/** Lets `turns` rounds of the event loop's work pass, most of them single microtasks. */
export async function drift(turns: number): Promise<void> {
  for (let n = 0; n < turns; n++)
    await (n % 3 === 2 ? new Promise((resolve) => setImmediate(resolve)) : Promise.resolve())
}

/** The real file, told of each write and sync; `sync` itself is left out, so that a test can have many logs. */
export function watchedFile(
  told: (what: 'write' | 'sync', bytes: Uint8Array) => void,
): NonNullable<OpenOptions['openFile']> {
  return async (path) => {
    const handle = await open(path, 'a')
    return {
      write: async (bytes) => {
        const { bytesWritten } = await handle.write(bytes)
        told('write', bytes)
        return bytesWritten
      },
      sync: () => {
        told('sync', new Uint8Array())
        return Promise.resolve()
      },
      truncate: (bytes) => handle.truncate(bytes),
      size: async () => (await handle.stat()).size,
      close: () => handle.close(),
    }
  }
}

/** Closes a log and opens its file again, as a new process would. */
export async function reopen(log: SessionLog): Promise<SessionLog> {
  await log.close()
  const again = await openSession(log.file)
  onTestFinished(() => again.close())
  return again
}

export type Rig = {
  readonly log: SessionLog
  readonly harness: Harness
  readonly events: readonly HarnessEvent[]
}

/** A harness on a log, and the events it tells. */
export function rig(
  log: SessionLog,
  options: Partial<HarnessOptions> & { readonly turns?: readonly ScriptedTurn[] } = {},
): Rig {
  const { turns = [], ...rest } = options
  const harness = createHarness({ log, model: createScriptedModel({ turns }), tools: [], system: 'Be brief.', ...rest })
  const events: HarnessEvent[] = []
  harness.subscribe((event) => events.push(event))
  return { log, harness, events }
}

/** A tool that answers with what it got, and keeps a list of its runs. */
export function echoTool(
  replay: 'safe' | 'never' = 'never',
  name = 'echo',
): Tool & { readonly runs: readonly { readonly args: JsonObject; readonly key: string }[] } {
  const runs: { readonly args: JsonObject; readonly key: string }[] = []
  return {
    name,
    description: 'says it again',
    parameters: { type: 'object', properties: { say: { type: 'string' } }, required: ['say'] },
    replay,
    runs,
    run: (args, { idempotencyKey }) => {
      runs.push({ args, key: idempotencyKey })
      const { say } = args
      return Promise.resolve({ content: `echo: ${typeof say === 'string' ? say : ''}` })
    },
  }
}

/** One line a word: `operation_started`, `user`, `toolResult`. */
export function trace(view: SessionView): readonly string[] {
  return view.lines.map(shape)
}

export function shape(line: Line): string {
  if (!isEntry(line) || line.type !== 'message') return line.type
  return messageOfLine(line)?.role ?? 'message'
}

/** The records of one type. */
export const recordsOf = (view: SessionView, type: string) => view.records().filter((record) => record.type === type)

/** All text of a message. */
export function said(message: Message | undefined): string {
  return (message?.content ?? []).map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** A promise and its resolver, for holding the world at a point. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined
  const opened = new Promise<void>((resolve) => (open = resolve))
  return { opened, open: () => open() }
}

/** A model that waits at a gate before each answer, unless aborted; `asked` is told of each request. */
export function gatedModel(inner: Model, opened: () => Promise<void>, asked: () => void = () => undefined): Model {
  return {
    ...inner,
    async *stream(request, options) {
      asked()
      await Promise.race([opened(), aborted(options.signal)])
      return yield* inner.stream(request, options)
    },
  }
}

/**
 * A script that goes by the answers of the log's lane, those too that a summary stands for, and that writes summaries.
 * `asked` is told of each request.
 */
export function scriptOn(
  log: SessionView,
  turns: readonly ScriptedTurn[],
  options: {
    readonly lane?: string
    readonly contextWindow?: number
    readonly maxTokens?: number
    /** The answer to a request for a summary; default: one that says how many there were before it. */
    readonly summary?: (request: ModelRequest) => ScriptedTurn
    readonly asked?: (request: ModelRequest, isSummary: boolean) => void
  } = {},
): Model {
  const { lane = 'main', contextWindow = 200_000, maxTokens = 100 } = options
  const script = createScriptedModel({ turns, contextWindow, maxTokens })
  const entries = () => log.path(log.leaf(lane))
  const padding = (): readonly Message[] =>
    entries().flatMap((entry) => (messageOfLine(entry)?.role === 'assistant' ? [blankAnswer] : []))
  const summaryOf =
    options.summary ??
    (() => ({ text: `Summary ${entries().filter(({ type }) => type === 'compaction').length + 1}.` }))
  return {
    ...script,
    async *stream(request, { signal }) {
      const isSummary = request.system === summarySystem
      options.asked?.(request, isSummary)
      if (!isSummary) return yield* script.stream({ ...request, messages: padding() }, { signal })
      return yield* createScriptedModel({ turns: [summaryOf(request)] }).stream(request, { signal })
    },
  }
}

const blankAnswer: Message = { role: 'assistant', model: 'scripted/script', content: [], stopReason: 'stop' }

/** Resolves at the abort. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/** Every invariant of a projection that can be checked on its own. */
export function checkProjection(messages: readonly Message[], model?: string): void {
  let waiting: string[] = []
  for (const message of messages) {
    JSON.stringify(message, (key, value: unknown) => {
      if (!key.isWellFormed() || (typeof value === 'string' && !value.isWellFormed()))
        throw new Error('a lone surrogate')
      return value
    })
    if (message.content.length === 0) throw new Error(`an empty ${message.role}`)
    if (message.role === 'toolResult') {
      if (waiting.shift() !== message.toolCallId) throw new Error(`result ${message.toolCallId} is out of place`)
      continue
    }
    if (waiting.length > 0) throw new Error(`call ${String(waiting[0])} has no result directly after its turn`)
    if (message.role !== 'assistant') continue
    if (model !== undefined && message.model !== model && message.content.some(({ type }) => type === 'reasoning'))
      throw new Error('reasoning of another model')
    waiting = message.content.flatMap((part) => (part.type === 'toolCall' ? [part.id] : []))
    if (message.stopReason === 'aborted' && waiting.length > 0) throw new Error('calls of an aborted answer')
  }
  if (waiting.length > 0) throw new Error(`call ${String(waiting[0])} has no result`)
}
