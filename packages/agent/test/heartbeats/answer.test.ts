import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseAnswer } from '../../src/heartbeats/answer.ts'

test('silence, a message, a steer', () => {
  expect(parseAnswer(' \nSILENCE\n')).toEqual({ type: 'silence' })
  expect(parseAnswer('Message: The build is red.\n')).toEqual({ type: 'message', text: 'The build is red.' })
  expect(parseAnswer('\n\tSteer:  Stop the deploy.\nIt is wrong.  ')).toEqual({
    type: 'steer',
    text: 'Stop the deploy.\nIt is wrong.',
  })
})

test('what comes near is none of them', () => {
  const near = [
    ...[
      '',
      '  \n',
      'silence',
      'Silence',
      'SILENCE.',
      '"SILENCE"',
      '`SILENCE`',
      '**SILENCE**',
      'SILENCE SILENCE',
      'SILENCE\nAll is well.',
    ],
    ...[
      'I say SILENCE',
      'SILENCEMessage: x',
      'message: x',
      'MESSAGE: x',
      'Message x',
      'Message:',
      'Message:  \n ',
      'Message:x',
      'Message : x',
    ],
    ...[
      '**Message:** x',
      'Here it is.\nMessage: x',
      '- Message: x',
      'steer: x',
      'Steer:',
      'Steering: x',
      'NO_REPLY',
      'HEARTBEAT_OK',
    ],
    ...['Message: a\nSteer: b', 'Message: a\nSILENCE', 'Steer: a\nMessage: b', `Message: ${'x'.repeat(20_001)}`],
  ]
  for (const text of near)
    expect([text, parseAnswer(text)]).toEqual([text, { type: 'invalid', problem: expect.any(String) }])
})

test('any text is read; what is wrong with it is said in one short piece', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const answer = parseAnswer(text)
      if (answer.type === 'invalid') expect(answer.problem.isWellFormed() && answer.problem.length < 2000).toBe(true)
    }),
  )
})
