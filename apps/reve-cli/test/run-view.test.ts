import type { HarnessEvent, HarnessEventBody } from '@reve/harness'
import { describe, expect, test } from 'vitest'
import { createRunView } from '../src/run-view.ts'

/** The lines that these events print. */
function lines(...events: readonly HarnessEventBody[]): readonly string[] {
  const printed: string[] = []
  const view = createRunView({
    result: () => undefined,
    status: () => undefined,
    clear: () => undefined,
    note: (...pieces) => {
      printed.push(
        ...pieces
          .map((piece) => (typeof piece === 'string' ? piece : piece.text))
          .join('')
          .split(/[\r\n]/),
      )
    },
  })
  for (const event of events) view({ v: 1, lane: 'main', runId: 'run_1', ...event } satisfies HarnessEvent)
  return printed
}

const toolResult = (text: string) => ({
  type: 'tool_finished' as const,
  toolCallId: 'c',
  toolName: 'bash',
  result: {
    role: 'toolResult' as const,
    toolCallId: 'c',
    toolName: 'bash',
    content: [{ type: 'text' as const, text }],
    isError: false,
  },
})

describe('what a model or a tool wrote is never a line of ours', () => {
  test.each([
    ['output', [toolResult('a\r◆ I am done\nb')]],
    [
      'a name and arguments',
      [
        {
          type: 'tool_started' as const,
          toolCallId: 'c',
          toolName: 'ba\n◆ sh',
          arguments: { command: 'x\r◆ I am done\ny' },
          resultEntryId: 'e',
        },
      ],
    ],
    [
      'its text',
      [
        { type: 'text' as const, delta: 'hello\n◆ I am done\r◆ really' },
        { type: 'run_finished' as const, outcome: 'aborted' as const, text: '' },
      ],
    ],
  ])('%s', (_, events) => {
    const ours = lines(...events).filter((line) => line.startsWith('◆'))
    expect(ours).toEqual(ours.filter((line) => line === '◆ hello'))
  })
})

test('a line of output is cut to a width that can be read', () => {
  const [line = ''] = lines(toolResult('x'.repeat(24_000)))
  expect(line.length).toBeLessThan(250)
})

test('the text of a run that was stopped is shown, that of a finished one is left to standard output', () => {
  const text = { type: 'text' as const, delta: 'so far' }
  expect(lines(text, { type: 'run_finished', outcome: 'aborted', text: 'so far' })).toEqual(['◆ so far'])
  expect(lines(text, { type: 'run_finished', outcome: 'completed', text: 'so far' })).toEqual([])
})

describe('a result without a start', () => {
  const message = {
    type: 'message' as const,
    entryId: 'e_1',
    message: {
      role: 'toolResult' as const,
      toolCallId: 'c',
      toolName: 'bash',
      content: [{ type: 'text' as const, text: 'why' }],
      isError: true,
    },
  }

  test('is that of a call which was refused, in a run', () => {
    expect(lines({ type: 'run_started' }, message)).toEqual(['▸ bash (not run)', '  │ why'])
  })

  test('is never said not to have run when recovery wrote it: nobody knows', () => {
    expect(lines(message)).toEqual([])
  })
})
