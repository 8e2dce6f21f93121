import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readStates } from '../../src/heartbeats/state-file.ts'
import { acceptedMessages } from '../../src/log-text.ts'
import { answering } from '../answering.ts'
import { killedLife } from '../lives.ts'
import { session } from '../session-support.ts'

test('killed at any instant: no beat comes twice, and what one said is said once', { timeout: 300_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'heartbeats-kill-'))
  mkdirSync(join(folder, 'workspace'))
  mkdirSync(join(folder, '.reve'))
  const tasks = ['1m', '2m', '3m'].map((every) => `- { name: t${every}, every: ${every}, prompt: x }\n`).join('')
  writeFileSync(join(folder, 'workspace/HEARTBEAT.yml'), `tasks:\n${tasks}`)
  const kills = Number(process.env['AGENT_KILLS'] ?? 12)
  let clock = 0
  for (let life = 0; life < kills; life++) {
    const told = await killedLife('heartbeats/kill-child.ts', [folder, String(clock), String(life)], {
      lines: 2 + (life % 5),
      moreMs: (life * 7) % 40,
    })
    clock = Number(told.at(-1)?.split(' ')[1] ?? clock) + 60_000
  }
  const begun = readFileSync(join(folder, 'begun'), 'utf8').trim().split('\n')
  expect(begun.length).toBeGreaterThan(kills / 2)
  expect(new Set(begun).size).toBe(begun.length)

  const { log } = await session(
    answering(() => ''),
    join(folder, 'main-1.jsonl'),
  )
  const said = acceptedMessages(log, (text) => text.startsWith('<heartbeat ')).map((id) =>
    JSON.stringify(log.records().find(({ entryId }) => entryId === id)),
  )
  const ids = said.map((text) => /hb_\d+_\d+/.exec(text)?.[0])
  expect(new Set(ids).size).toBe(ids.length)
  const { states } = await readStates(join(folder, '.reve/heartbeats.json'))
  const waiting = [...states.values()].flatMap(({ undelivered }) => undelivered?.id ?? [])
  for (const { outcome, id } of [...states.values()].flatMap(({ past }) => past))
    if (outcome === 'message') expect([...ids, ...waiting]).toContain(id)
})
