import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { killedLife } from '../lives.ts'
import { textOf } from '../session-support.ts'
import { live, token } from './kill-world.ts'

test('killed at any instant: every message is said once, in order, and answered', { timeout: 300_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'channels-kill-'))
  const at = (name: string): string => join(folder, 'channels/drop', name)
  mkdirSync(at('in'), { recursive: true })
  mkdirSync(join(folder, 'sessions'))
  let port = 0
  const over = new AbortController()
  const sent: { readonly text: string; readonly id: string }[] = []
  const put: string[] = []

  /** One caller that says one thing after the other, each until it is taken. */
  const caller = async (): Promise<void> => {
    for (let n = 0; !over.signal.aborted; n++) {
      const text = `h${n}`
      for (;;) {
        const id = await post(port, text)
        if (id !== undefined) {
          sent.push({ text, id })
          break
        }
        if (over.signal.aborted) return
        await sleep(5)
      }
      await sleep(Math.random() * 20)
    }
  }
  const dropper = async (): Promise<void> => {
    for (let n = 0; !over.signal.aborted; n++) {
      const name = `f${String(n).padStart(4, '0')}`
      writeFileSync(at(`in/.${name}`), name)
      renameSync(at(`in/.${name}`), at(`in/${name}`))
      put.push(name)
      await sleep(30 + Math.random() * 60)
    }
  }
  const working = Promise.all([caller(), dropper()])
  const kills = Number(process.env['AGENT_KILLS'] ?? 12)
  for (let round = 0; round < kills; round++) {
    await killedLife('channels/kill-child.ts', [folder], {
      lines: 3 + ((round * 5) % 23),
      moreMs: (round * 7) % 30,
      onLine: (line) => (port = line.startsWith('port ') ? Number(line.slice(5)) : port),
    })
  }
  over.abort()
  await working

  let waiting: () => void = () => undefined
  const last = await live(folder, { onListening: (now) => (port = now), onEvent: () => waiting() })
  onTestFinished(() => last.close())
  const said = (): readonly string[] =>
    last.harness
      .messages()
      .flatMap((message) => (message.role === 'user' ? [textOf(message).split('\n')[1] ?? ''] : []))
  // A kill leaves the temporary name of what was being written.
  const answers = (): readonly string[] => readdirSync(at('out')).filter((name) => !name.startsWith('.'))
  while (answers().length < put.length)
    await Promise.race([new Promise<void>((resolve) => (waiting = resolve)), sleep(50)])

  const http = said().filter((text) => text.startsWith('h'))
  // The last one may have been taken in without the caller having heard of it.
  expect(sent.length).toBeGreaterThan(kills / 2)
  expect(http.slice(0, sent.length)).toEqual(sent.map(({ text }) => text))
  expect(http.length - sent.length).toBeLessThanOrEqual(1)
  expect(said().filter((text) => text.startsWith('f'))).toEqual(put)
  expect(said()).toHaveLength(http.length + put.length)

  for (const { text, id } of sent) expect(await answerTo(port, id)).toBe(`re: ${text}`)
  const texts = answers().map((name) => readFileSync(at(`out/${name}`), 'utf8'))
  expect(texts.toSorted()).toEqual(put.map((name) => `re: ${name}\n`))
  expect([readdirSync(at('in')), readdirSync(at('taking')), readdirSync(at('refused'))]).toEqual([[], [], []])
})

const headers = { authorization: `Bearer ${token}`, 'content-type': 'text/plain' }

/** The id of a message that was taken in; undefined when nobody knows. */
async function post(port: number, text: string): Promise<string | undefined> {
  if (port === 0) return undefined
  const init = { method: 'POST', body: text, headers: { ...headers, 'idempotency-key': text } }
  const response = await fetch(`http://127.0.0.1:${port}/messages`, init).catch(() => undefined)
  if (response === undefined) return undefined
  const body: unknown = await response.json().catch(() => undefined)
  if (!response.ok) throw new Error(JSON.stringify(body))
  return typeof body === 'object' && body !== null && 'id' in body ? String(body.id) : undefined
}

async function answerTo(port: number, id: string): Promise<unknown> {
  const response = await fetch(`http://127.0.0.1:${port}/messages/${id}?wait=30`, { headers })
  const body: unknown = await response.json()
  return typeof body === 'object' && body !== null && 'answer' in body ? body.answer : body
}
