/*
 * A process to be killed: `node --conditions=@reve/source kill-child.ts`, then one JSON line on its standard input (`Job`).
 */
import { createHarness, type Harness, HarnessError, type Tool } from '@reve/harness'
import { createScriptedModel, type UserMessage } from '@reve/providers/model'
import { createSession, openSession, SessionLogError } from '@reve/session-log'
import { existsSync, readSync, writeSync } from 'node:fs'
import {
  harnessOptions,
  type Job,
  lanes,
  makeEffect,
  pause,
  randomOf,
  talkativeModel,
  type Told,
  toolsOf,
} from './kill-world.ts'

// Written at once: what is told has happened, whatever comes next.
const tell = (told: Told): void => void writeSync(1, `${JSON.stringify(told)}\n`)
const textOf = ({ content }: UserMessage): string =>
  content.map((part) => (part.type === 'text' ? part.text : '')).join('')
const returned = (messages: readonly UserMessage[]): void => {
  if (messages.length > 0) tell({ type: 'returned', texts: messages.map(textOf) })
}

// The modules are loaded by now: the job meets a process that is warm.
tell({ type: 'ready' })
const input = Buffer.alloc(4096)
const job: Job = JSON.parse(input.subarray(0, readSync(0, input)).toString())
const random = randomOf(job.seed * 7919 + job.life)
const pick = <const T>(items: readonly [T, ...T[]]): T => items[Math.floor(random() * items.length)] ?? items[0]

async function openLog() {
  try {
    return await openSession(job.file)
  } catch (error) {
    if (!(error instanceof SessionLogError) || error.code !== 'not_found') throw error
    return createSession(job.file, { cwd: 'workspace' })
  }
}

/** Codes that mean: not now. Everything else ends this process with its message. */
function notNow(error: unknown, ...codes: readonly HarnessError['code'][]): void {
  if (!(error instanceof HarnessError) || !codes.includes(error.code)) throw error
}

/** Runs on one lane, and now and then a summary of it, one after the other, for ever. */
async function work(harness: Harness, lane: string, canContinue: boolean): Promise<never> {
  let goesOn = canContinue && random() < 0.7
  for (let n = 0; ; n++) {
    const ended = await (goesOn
      ? harness.continue({ lane })
      : harness.prompt(`${job.life}/${lane}/prompt ${n}`, { lane }))
    tell({ type: 'ended', lane, outcome: ended.outcome })
    returned(ended.returned)
    goesOn = false
    if (random() < 0.2) await compact(harness, lane)
    await pause(random() * 3)
  }
}

async function compact(harness: Harness, lane: string): Promise<void> {
  try {
    const ended = await harness.compact({ lane })
    tell({ type: 'ended', lane, outcome: ended.outcome })
    returned(ended.returned)
  } catch (error) {
    notNow(error, 'nothing_to_compact')
  }
}

/** Talks into the runs of both lanes, for ever. */
async function interfere(harness: Harness): Promise<never> {
  for (let n = 0; ; n++) {
    await pause(random() * 8)
    const lane = pick(lanes)
    const act = pick(['steer', 'steer', 'steer', 'follow_up', 'next_run', 'abort', 'prompt'])
    const text = `${job.life}/${lane}/${act} ${n}`
    try {
      switch (act) {
        case 'steer':
          await harness.steer(text, { lane })
          break
        case 'follow_up':
          await harness.followUp(text, { lane })
          break
        case 'next_run':
          await harness.nextRun(text, { lane })
          break
        case 'abort':
          if (random() < 0.5) returned((await harness.abort({ lane })).returned)
          continue
        case 'prompt':
          // Only while the lane is busy: an accepted one would take the lane from its worker.
          if (harness.status(lane).state === 'idle') continue
          await harness.prompt(text, { lane })
          throw new Error(`two runs on lane ${lane}`)
        default:
          act satisfies never
      }
      tell({ type: 'accepted', how: act, text })
    } catch (error) {
      notNow(error, act === 'prompt' ? 'lane_busy' : 'lane_idle')
    }
  }
}

async function run(): Promise<void> {
  await using log = await openLog()
  tell({ type: 'open' })
  const model = talkativeModel(job.seed)
  const harness = createHarness({ ...harnessOptions, log, model, tools: toolsOf(job.effects, random) })
  harness.subscribe((event) => {
    if (event.type === 'run_started' && event.prompt !== undefined)
      tell({ type: 'accepted', how: 'prompt', text: textOf(event.prompt) })
  })
  const report = await harness.recover()
  returned(report.lanes.flatMap((lane) => lane.returned))
  const waits = (name: string): boolean => report.lanes.some(({ lane, canContinue }) => lane === name && canContinue)
  if (job.mode === 'work') {
    await Promise.all([...lanes.map((lane) => work(harness, lane, waits(lane))), interfere(harness)])
  }
  await Promise.all(
    lanes.map(async (lane) => {
      if (waits(lane)) await harness.continue({ lane })
      const { outcome } = await harness.prompt(`${job.life}/${lane}/last`, { lane })
      tell({ type: 'ended', lane, outcome })
    }),
  )
  await harness.close()
  tell({ type: 'finished' })
}

/** One run, whose one tool makes its effect and then holds until the file `<effects>.release` is there. */
async function hold(): Promise<void> {
  await using log = await openLog()
  const tool: Tool = {
    name: 'hold',
    description: 'makes an effect and waits',
    parameters: { type: 'object' },
    replay: job.replay,
    run: async (_, { idempotencyKey }) => {
      makeEffect(job.effects, idempotencyKey)
      tell({ type: 'inside' })
      while (!existsSync(`${job.effects}.release`)) await pause(5)
      return { content: 'let go' }
    },
  }
  const turns = [{ text: 'I hold.', calls: [{ name: 'hold' }] }, { text: 'Done.' }]
  const harness = createHarness({ ...harnessOptions, log, model: createScriptedModel({ turns }), tools: [tool] })
  const { outcome } = await harness.prompt('Hold')
  await harness.close()
  tell({ type: 'ended', lane: 'main', outcome })
}

switch (job.mode) {
  case 'work':
  case 'finish':
    await run()
    break
  case 'hold':
    await hold()
    break
  case 'exit':
    break
  default:
    job.mode satisfies never
}
