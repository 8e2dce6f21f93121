import { parentPort, workerData } from 'node:worker_threads'
import { loadLuaC } from './lua-c.ts'
import { LuaState, type HostReply } from './lua-state.ts'
import { MarshalError } from './marshal.ts'
import type { EmitKind, Failure, FromWorker, RawDeclaration, ToWorker, WorkerStart } from './protocol.ts'
import { moduleName } from './module-name.ts'
import { resultText } from './result-text.ts'

/*
 * The thread that a Lua state lives in. It loads the files once and then answers one call at a time. When something happens
 * that Lua cannot have done (a JavaScript exception, an abort of the WebAssembly module), it says `broken` and is ended.
 */

/** Messages of print, progress and log that one call may send, and their characters. */
const MAX_EMITS = 10_000
const MAX_EMITTED = 1 << 20

if (parentPort === null) throw new Error('this module runs in a worker only')
const port = parentPort
const start: WorkerStart = workerData
const say = (message: FromWorker): void => {
  port.postMessage(message)
}

let room = { messages: MAX_EMITS, characters: MAX_EMITTED }
function emit(kind: EmitKind, text: string): void {
  if (room.messages === 0) return
  room.messages -= 1
  room.characters -= text.length
  if (room.characters < 0) room.messages = 0
  say({ type: 'emit', kind, text: room.messages === 0 ? '(more output of this call is dropped)' : text })
}

const declarations: RawDeclaration[] = []
const cpuMs = threadClock()
const state = new LuaState(await loadLuaC(), {
  memoryBytes: start.memoryBytes,
  shared: new Int32Array(start.shared),
  cpuMs,
  emit,
  declare: (declaration) => declarations.push(declaration),
})

/** CPU time of this thread where Node can tell (23.9 and later), so that a busy machine does not eat a script's budget. */
function threadClock(): () => number {
  if (typeof process.threadCpuUsage !== 'function') return () => performance.now()
  return () => {
    const { user, system } = process.threadCpuUsage()
    return (user + system) / 1000
  }
}

async function load(): Promise<void> {
  const failures: (Failure & { readonly file: string })[] = []
  const modules = new Map<string, (typeof start.files)[number]>()
  for (const each of start.files) if (each.kind === 'lib') modules.set(moduleName(each.file), each)
  const known = await state.giveModules([...modules].map(([name, { file, source }]) => [name, file, bare(source)]))
  for (const failure of known) failures.push(failure)
  for (const { kind, file, source } of start.files) {
    if (kind === 'lib') continue
    say({ type: 'loading', file })
    const outcome = await state.loadFile(file, bare(source), kind, start.loadCpuMs)
    if (!outcome.ok) failures.push({ ...outcome.failure, file })
  }
  await state.finishLoading()
  say({ type: 'loaded', declarations, failures })
}

const bare = (source: string): string => (source.startsWith('\uFEFF') ? source.slice(1) : source)

let answer: ((reply: HostReply) => void) | undefined

async function call(message: ToWorker & { readonly type: 'call' }): Promise<void> {
  room = { messages: MAX_EMITS, characters: MAX_EMITTED }
  const outcome = await state.call(
    message,
    (asked, args) =>
      new Promise<HostReply>((resolve) => {
        answer = resolve
        say({ type: 'ask', asked, args })
      }),
  )
  if (!outcome.ok) {
    say({ type: 'failed', failure: outcome.failure })
    return
  }
  try {
    say({ type: 'done', value: message.gives === 'text' ? resultText(outcome.value) : outcome.value })
  } catch (error) {
    if (!(error instanceof MarshalError)) throw error
    say({
      type: 'failed',
      failure: { code: 'lua_runtime', text: `the result: ${error.message}`, traceback: '', spoiled: false },
    })
  }
}

function broken(error: unknown): void {
  say({ type: 'broken', message: error instanceof Error ? error.message : String(error) })
}

port.on('message', (message: ToWorker) => {
  switch (message.type) {
    case 'call':
      call(message).catch(broken)
      break
    case 'reply':
      answer?.(message)
      break
    default:
      message satisfies never
  }
})

await load().catch(broken)
