import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createHarness } from '@reve/harness'
import { openSession } from '@reve/session-log'
import { sessionBeats } from '../../src/heartbeats/beat.ts'
import { startHeartbeats } from '../../src/heartbeats/runner.ts'
import { answering } from '../answering.ts'

/** A process whose clock runs a thousand times as fast, until it is killed. Each beat that begins is a line of `begun`. */
const [, , folder = '', from = '0', life = '0'] = process.argv
const speed = 1000
const began = Date.now()
const now = (): number => Number(from) + (Date.now() - began) * speed

const log = await openSession(`${folder}/main-1.jsonl`, { create: { cwd: 'workspace' } })
const model = answering(async () => {
  await sleep(Math.random() * 10)
  return 'Message: Look.'
})
const harness = createHarness({ log, model, tools: [], system: '' })
await harness.recover()
const { run, deliver, isBusy } = sessionBeats({ harness, log })
let ids = 0
startHeartbeats({
  workspace: `${folder}/workspace`,
  stateFile: `${folder}/.reve/heartbeats.json`,
  now,
  after: async (ms, signal) => {
    await sleep(ms / speed, undefined, { signal }).catch(() => undefined)
  },
  newId: () => `hb_${life}_${++ids}`,
  isBusy,
  deliver,
  run: async (beat, signal) => {
    appendFileSync(`${folder}/begun`, `${beat.task.name} ${beat.due}\n`)
    return run(beat, signal)
  },
  onEvent: (event) => process.stdout.write(`${event.type} ${now()}\n`),
})
