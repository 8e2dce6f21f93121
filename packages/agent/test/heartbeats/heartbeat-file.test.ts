import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseHeartbeats } from '../../src/heartbeats/heartbeat-file.ts'

const parse = (text: string) => parseHeartbeats(text, 'HEARTBEAT.yml')
const problemsOf = (text: string): string => {
  try {
    parse(text)
    return 'none'
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

describe('HEARTBEAT.yml', () => {
  test('gives its tasks in order, with what is not said filled in', () => {
    const tasks = parse(`
timezone: Europe/Berlin
tasks:
  - name: tidy
    every: 4h
    prompt: |
      Look through notes/.
  - { name: Morning.1, cron: 0 9 * * MON-FRI, prompt: Look, continue: true, timeout: 1h }
  - { name: utc, cron: 0 9 * * *, timezone: UTC, prompt: Look }
`)
    expect(tasks).toEqual([
      {
        name: 'tidy',
        schedule: { type: 'every', ms: 14_400_000 },
        prompt: 'Look through notes/.',
        continues: false,
        timeoutMs: 900_000,
      },
      {
        name: 'Morning.1',
        schedule: { type: 'cron', expression: '0 9 * * MON-FRI', timezone: 'Europe/Berlin' },
        prompt: 'Look',
        continues: true,
        timeoutMs: 3_600_000,
      },
      expect.objectContaining({ schedule: { type: 'cron', expression: '0 9 * * *', timezone: 'UTC' } }),
    ])
  })

  test('may be empty, all comment, or without tasks; the scaffold has none', () => {
    const template = readFileSync(new URL('../../templates/workspace/HEARTBEAT.yml', import.meta.url), 'utf8')
    for (const text of ['', '# nothing', 'tasks:', 'tasks: []', 'timezone: UTC', template])
      expect([text, parse(text)]).toEqual([text, []])
    // What it shows as an example is one.
    const example = template.replace('tasks: []', '').replaceAll(/^# (?=tasks:| )/gm, '')
    expect(parse(example).map(({ name }) => name)).toContain('tidy')
  })

  test('tells every mistake with its place', () => {
    const text = `tasks:
  - name: main
    every: 10s
    prompt: x
  - name: b
    evry: 1h
    cron: 61 * * * *
    prompt: '  '
  - name: c
    prompt: x
  - name: d
    every: 1h
    cron: 0 9 * * *
    prompt: x
  - name: e
    every: 1h
    timezone: Mars/Phobos
    prompt: x
  - 7
`
    expect(problemsOf(text).split('\n')).toEqual([
      'HEARTBEAT.yml:2:11: tasks/0/name: "main" is the lane of the conversation itself',
      'HEARTBEAT.yml:3:12: tasks/0/every: takes whole minutes, hours or days, a year at most, as in "10m", "4h", "1d"; it is "10s"',
      'HEARTBEAT.yml:7:11: tasks/1/cron: Invalid value for minute: 61',
      'HEARTBEAT.yml:8:14: tasks/1/prompt: must not be empty',
      expect.stringMatching(/^HEARTBEAT\.yml:6:11: tasks\/1\/evry: unknown key.*"every"/),
      'HEARTBEAT.yml:9:5: tasks/2: takes either `every` or `cron`',
      'HEARTBEAT.yml:11:5: tasks/3: takes either `every` or `cron`',
      'HEARTBEAT.yml:17:15: tasks/4/timezone: "Mars/Phobos" is no time zone that this system knows',
      'HEARTBEAT.yml:15:5: tasks/4: `timezone` goes with `cron`',
      expect.stringMatching(/^HEARTBEAT\.yml:\d+:\d+: tasks\/5: must be a mapping with: name, every/),
    ])
    expect(problemsOf('tasks:\n  - name: c\n    prompt: x\n')).toBe(
      'HEARTBEAT.yml:2:5: tasks/0: takes either `every` or `cron`',
    )
    expect(problemsOf('tasks:\n  - { name: c, every: 1h, cron: 0 9 * * *, prompt: x }\n')).toContain('takes either')
    expect(problemsOf('tasks:\n  - { name: c, every: 1h, timezone: UTC, prompt: x }\n')).toContain('goes with `cron`')
    expect(problemsOf('tasks:\n  - { every: 1h, prompt: x }\n')).toContain('tasks/0/name: is missing')
    expect(problemsOf('tasks:\n  - { name: c, every: 1h, prompt: x }\n  - { name: c, every: 2h, prompt: x }\n')).toBe(
      'HEARTBEAT.yml:3:13: tasks/1/name: there is a task "c" already',
    )
    expect(problemsOf('task: []\n')).toContain('HEARTBEAT.yml:1:7: task: unknown key')
    expect(problemsOf('- a\n')).toContain('must be a mapping with: timezone, tasks')
    expect(problemsOf('tasks: [\n')).toMatch(/^HEARTBEAT\.yml:\d+:\d+: /)
    expect(
      problemsOf(
        `tasks: [${Array.from({ length: 51 }, (_, n) => `{ name: t${n}, every: 1h, prompt: x }`).join(', ')}]`,
      ),
    ).toContain('more than 50 tasks')
  })

  test('any text is tasks or an error with a place', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json().map((json) => `tasks: [${json}]`),
        ),
        (text) => {
          try {
            expect(parse(text)).toBeInstanceOf(Array)
          } catch (error) {
            expect(String(error)).toMatch(/HEARTBEAT\.yml:\d+:\d+: /)
          }
        },
      ),
      { numRuns: 300 },
    )
  })
})
