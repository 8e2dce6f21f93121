import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { type AppendFile, openAppendFile, type OpenFile } from '../src/append-file.ts'
import { type Draft, type Json, type JsonObject, SessionLogError } from '../src/index.ts'

/** A fresh folder, removed after the test. */
export function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'session-log-'))
  onTestFinished(() => rmSync(path, { recursive: true, force: true }))
  return path
}

export const TS = '2026-01-05T10:00:00.000Z'
export const header: JsonObject = { kind: 'header', version: 4, id: 's_1', cwd: 'workspace', ts: TS }

/** A raw entry line; `over` replaces or adds keys. */
export const entry = (seq: number, parentId: string | null, over: JsonObject = {}): JsonObject => ({
  kind: 'entry',
  id: `e_${seq}`,
  seq,
  ts: TS,
  lane: 'main',
  type: 'custom',
  parentId,
  data: seq,
  ...over,
})

/** A raw record line. */
export const record = (seq: number, over: JsonObject = {}): JsonObject => ({
  kind: 'record',
  id: `r_${seq}`,
  seq,
  ts: TS,
  lane: 'main',
  type: 'note',
  ...over,
})

/** The bytes of lines, each with its LF. A string or bytes stand for themselves, without one. */
export const bytesOf = (...lines: readonly (Json | Uint8Array)[]): Buffer =>
  Buffer.concat(
    lines.map((line) =>
      line instanceof Uint8Array ? line : Buffer.from(typeof line === 'string' ? line : `${JSON.stringify(line)}\n`),
    ),
  )

/** Writes such bytes to a new file. */
export function fileOf(...lines: readonly (Json | Uint8Array)[]): string {
  const file = join(folder(), 'session.jsonl')
  writeFileSync(file, bytesOf(...lines))
  return file
}

export const note = (data: Json, over: Partial<Extract<Draft, { kind: 'entry' }>> = {}): Draft => ({
  kind: 'entry',
  lane: 'main',
  type: 'custom',
  payload: { customType: 'note', data },
  ...over,
})

export const fact = (key: string, value: Json): Draft => ({
  kind: 'record',
  lane: 'main',
  type: 'fact_set',
  payload: { key, value },
})

/** The typed error that a promise rejects with; a resolution fails the test. */
export async function failure(promise: Promise<unknown>): Promise<SessionLogError> {
  try {
    await promise
  } catch (error) {
    if (error instanceof SessionLogError) return error
    throw error
  }
  throw new Error('expected a SessionLogError')
}

/** The parsed lines of a file, all of which must parse and end in LF. */
export function linesOn(file: string): readonly JsonObject[] {
  const text = readFileSync(file, 'utf8')
  if (!text.endsWith('\n')) throw new Error('the file does not end in LF')
  return text
    .slice(0, -1)
    .split('\n')
    .map((line): JsonObject => JSON.parse(line))
}

/** The real file behind a counter, with a switch to break each call. */
export function brittle(): {
  readonly openFile: OpenFile
  readonly writes: number[]
  readonly calls: { sync: number; truncate: number }
  readonly broken: { write?: () => Promise<number | 'go on'>; sync?: Error; truncate?: Error }
  /** The last opened file, for a write behind the log's back. */
  file(): AppendFile
} {
  const writes: number[] = []
  const calls = { sync: 0, truncate: 0 }
  const broken: { write?: () => Promise<number | 'go on'>; sync?: Error; truncate?: Error } = {}
  let last: AppendFile | undefined
  const openFile: OpenFile = async (path) => {
    const real = await openAppendFile(path)
    last = real
    return {
      write: async (bytes) => {
        writes.push(bytes.length)
        const cut = (await broken.write?.()) ?? 'go on'
        return cut === 'go on' ? real.write(bytes) : cut === 0 ? 0 : real.write(bytes.subarray(0, cut))
      },
      sync: async () => {
        calls.sync++
        if (broken.sync !== undefined) throw broken.sync
        await real.sync()
      },
      truncate: async (bytes) => {
        calls.truncate++
        if (broken.truncate !== undefined) throw broken.truncate
        await real.truncate(bytes)
      },
      size: () => real.size(),
      close: () => real.close(),
    }
  }
  return {
    openFile,
    writes,
    calls,
    broken,
    file: () => {
      if (last === undefined) throw new Error('no file was opened')
      return last
    },
  }
}

export const errno = (code: string) => Object.assign(new Error(`${code}: a broken disk`), { code })
