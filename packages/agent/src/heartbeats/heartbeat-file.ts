import { didYouMean } from '@reve/base'
import { parseYaml } from '@reve/base/yaml'
import * as v from 'valibot'
import { cronProblem, isTimezone, parseEvery, type Schedule } from './schedule.ts'

/** One task of `HEARTBEAT.yml`. */
export type HeartbeatTask = {
  readonly name: string
  readonly schedule: Schedule
  readonly prompt: string
  /** The conversation of the beat before goes on; otherwise each beat begins with an empty one. */
  readonly continues: boolean
  /** After so many milliseconds a beat is stopped. */
  readonly timeoutMs: number
}

const MOST_TASKS = 50
const MOST_PROMPT_CHARACTERS = 20_000
const DEFAULT_TIMEOUT = '15m'
const taskKeys = ['name', 'every', 'cron', 'timezone', 'prompt', 'continue', 'timeout']
const fileKeys = ['timezone', 'tasks']

/** What an object's issue is: a key that is missing, one that nobody knows, or no mapping at all. */
const ofMapping = (keys: readonly string[], what: string) => (issue: v.StrictObjectIssue) => {
  const place = issue.path?.at(-1)
  if (issue.expected === 'never' && !Array.isArray(place?.input))
    return `unknown key${didYouMean(String(place?.key), keys)}; a ${what} has: ${keys.join(', ')}`
  return (issue.expected ?? '').startsWith('"') ? 'is missing' : `must be a mapping with: ${keys.join(', ')}`
}

const Duration = v.pipe(
  v.string('must be text such as "4h"'),
  v.rawTransform(({ dataset: { value }, addIssue, NEVER }) => {
    const ms = parseEvery(value)
    if (ms !== undefined) return ms
    addIssue({
      message: `takes whole minutes, hours or days, a year at most, as in "10m", "4h", "1d"; it is "${value}"`,
    })
    return NEVER
  }),
)

const Timezone = v.pipe(
  v.string('must be the name of a time zone, such as "Europe/Berlin"'),
  v.check(isTimezone, ({ received }) => `${received} is no time zone that this system knows`),
)

const Task = v.pipe(
  v.strictObject(
    {
      name: v.pipe(
        v.string('must be text'),
        v.regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'takes 1 to 64 of letters, digits, _, . and -, the first no sign'),
        v.check((name) => name !== 'main', '"main" is the lane of the conversation itself'),
      ),
      every: v.optional(Duration),
      cron: v.optional(
        v.pipe(
          v.string('must be text such as "0 9 * * MON-FRI"'),
          v.rawCheck(({ dataset, addIssue }) => {
            const problem = dataset.typed ? cronProblem(dataset.value) : undefined
            if (problem !== undefined) addIssue({ message: problem })
          }),
        ),
      ),
      timezone: v.optional(Timezone),
      prompt: v.pipe(
        v.string('must be text'),
        v.trim(),
        v.nonEmpty('must not be empty'),
        v.maxLength(MOST_PROMPT_CHARACTERS, `has more than ${MOST_PROMPT_CHARACTERS} characters`),
      ),
      continue: v.optional(v.boolean('must be true or false'), false),
      timeout: v.optional(Duration, DEFAULT_TIMEOUT),
    },
    ofMapping(taskKeys, 'task'),
  ),
  v.check(({ every, cron }) => (every === undefined) !== (cron === undefined), 'takes either `every` or `cron`'),
  v.check(({ every, timezone }) => every === undefined || timezone === undefined, '`timezone` goes with `cron`'),
)

const File = v.nullable(
  v.strictObject(
    {
      timezone: v.optional(Timezone, 'UTC'),
      tasks: v.nullish(
        v.pipe(
          v.array(Task, 'must be a list'),
          v.maxLength(MOST_TASKS, `more than ${MOST_TASKS} tasks`),
          v.rawCheck(({ dataset, addIssue }) => {
            if (!dataset.typed) return
            dataset.value.forEach((task, index) => {
              if (dataset.value.findIndex(({ name }) => name === task.name) === index) return
              const item = { type: 'array', origin: 'value', input: dataset.value, key: index, value: task } as const
              const name = { type: 'object', origin: 'value', input: task, key: 'name', value: task.name } as const
              addIssue({ message: `there is a task "${task.name}" already`, path: [item, name] })
            })
          }),
        ),
      ),
    },
    ofMapping(fileKeys, 'heartbeat file'),
  ),
)

/**
 * The tasks of a `HEARTBEAT.yml`, in its order; none for an empty file. A cron without a `timezone` takes the file's, which is UTC
 * when it names none.
 *
 * @param file the name that messages show.
 * @throws YamlError naming every mistake with file:line:column.
 */
export function parseHeartbeats(source: string, file: string): readonly HeartbeatTask[] {
  const parsed = parseYaml(source, file, File)
  return (parsed?.tasks ?? []).map((task) => ({
    name: task.name,
    schedule:
      task.every === undefined
        ? {
            type: 'cron',
            // The check above left no third way.
            expression: task.cron ?? '',
            timezone: task.timezone ?? parsed?.timezone ?? 'UTC',
          }
        : { type: 'every', ms: task.every },
    prompt: task.prompt,
    continues: task.continue,
    timeoutMs: task.timeout,
  }))
}
