import { closeSync, openSync, writeSync } from 'node:fs'

/** Mulberry32, from 0 up to 1: the same conversation in every run. */
function random(seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const words =
  'the a file reads line error build test function returns value when tool output shows import from const await async session log bytes write sync lock holder naïve'.split(
    ' ',
  )
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz'
const start = Date.UTC(2026, 0, 5, 10)
const usage = { input: 12_000, cacheRead: 11_000, cacheWrite: 100, output: 300, reasoning: 40 }
/** What each of the two keeps with an answer. */
const ours = { model: 'anthropic/claude-sonnet', usage }
const theirs = {
  api: 'anthropic-messages',
  provider: 'anthropic',
  model: 'claude-sonnet',
  usage: {
    ...usage,
    totalTokens: 23_400,
    cost: { input: 0.036, output: 0.0045, cacheRead: 0.0033, cacheWrite: 0.0004, total: 0.0442 },
  },
}

/** A file that is written in large pieces. */
function writer(path: string): { readonly line: (value: object) => void; readonly end: () => void } {
  const file = openSync(path, 'w')
  let waiting = ''
  const flush = () => {
    writeSync(file, waiting)
    waiting = ''
  }
  return {
    line: (value) => {
      waiting += `${JSON.stringify(value)}\n`
      if (waiting.length > 1_000_000) flush()
    },
    end: () => {
      flush()
      closeSync(file)
    },
  }
}

/**
 * Writes one made-up conversation (a prompt, a request for a tool, its result, an answer, and so on) three times: as ours
 * with entries only, as ours with the records that a harness writes, and as a session of pi (its format 3).
 */
export function writeConversation(
  entries: number,
  files: { readonly bare: string; readonly recorded: string; readonly pi: string },
): void {
  const next = random(20_260_105)
  const text = (length: number) => {
    let result = ''
    while (result.length < length)
      result += (words[Math.floor(next() * words.length)] ?? '') + (next() < 0.1 ? '\n' : ' ')
    return result
  }
  const id = (prefix: string) =>
    prefix + Array.from({ length: 20 }, () => alphabet[Math.floor(next() * alphabet.length)]).join('')
  const [bare, recorded, pi] = [writer(files.bare), writer(files.recorded), writer(files.pi)]
  const created = new Date(start).toISOString()
  for (const file of [bare, recorded])
    file.line({ kind: 'header', version: 4, id: 's_1', cwd: 'workspace', ts: created })
  pi.line({
    type: 'session',
    version: 3,
    id: '0198c0de-0000-7000-8000-000000000000',
    timestamp: created,
    cwd: 'workspace',
  })
  let parentId: string | null = null
  let piParentId: string | null = null
  let seq = 0
  for (let index = 0; index < entries; index++) {
    const timestamp = start + index * 1000
    const ts = new Date(timestamp).toISOString()
    const record = (type: string, payload: object) =>
      recorded.line({ kind: 'record', id: id('r_'), seq: ++seq, ts, lane: 'main', type, runId: 'run_1', ...payload })
    const call = { type: 'toolCall', id: `call_${index - (index % 4)}`, name: 'read', arguments: { path: 'src/a.ts' } }
    const entryId = id('e_')
    const message = [
      { role: 'user', content: [{ type: 'text', text: text(500) }] },
      { role: 'assistant', content: [{ type: 'text', text: text(300) }, call], stopReason: 'toolUse' },
      {
        role: 'toolResult',
        toolCallId: call.id,
        toolName: 'read',
        content: [{ type: 'text', text: text(1000) }],
        isError: false,
      },
      { role: 'assistant', content: [{ type: 'text', text: text(300) }], stopReason: 'stop' },
    ][index % 4]
    const isAnswer = index % 2 === 1
    if (isAnswer) record('task_attempt', { step: index, attempt: 1, resultEntryId: entryId })
    if (index % 4 === 2) record('tool_started', { toolCallId: call.id, toolName: 'read', resultEntryId: entryId })
    const line = { ts, lane: 'main', type: 'message', parentId, message: { ...message, ...(isAnswer && ours) } }
    bare.line({ kind: 'entry', id: entryId, seq: index + 1, ...line })
    recorded.line({ kind: 'entry', id: entryId, seq: ++seq, ...line })
    if (isAnswer) record('usage', { entryId, usage, cost: 0.02 })
    const piId = entryId.slice(2, 10)
    pi.line({
      type: 'message',
      id: piId,
      parentId: piParentId,
      timestamp: ts,
      message: { ...message, ...(isAnswer && theirs), timestamp },
    })
    parentId = entryId
    piParentId = piId
  }
  for (const file of [bare, recorded, pi]) file.end()
}
