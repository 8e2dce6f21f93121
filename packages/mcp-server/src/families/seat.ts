import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import type { Seat } from '../seats.ts'

const show = (seat: Seat): string =>
  [
    `seat ${seat.name} (since ${seat.createdAt})`,
    `identity: ${seat.identity || '(none)'}`,
    `system_prompt: ${seat.systemPrompt || '(none)'}`,
    `loop_state: ${seat.loopState || '(none)'}`,
  ].join('\n')

/** All three together fit into one answer. */
const seatText = v.pipe(field.text, v.maxLength(16_000, 'must be at most 16,000 characters'))

export const seat: Family = {
  name: 'seat',
  purpose:
    'The identity that acts: every call is attributed to the seat whose token made it. Its texts are yours to keep.',
  fields: {
    loop_state: { type: 'string', description: 'Where your own loop stands; survives you' },
    identity: { type: 'string', description: 'Who you are' },
    system_prompt: { type: 'string', description: 'Your system prompt' },
  },
  hints: { readOnly: false, destructive: false, idempotent: true, openWorld: false },
  actions: {
    whoami: action({
      signature: 'seat.whoami()',
      fields: {},
      logged: [],
      effect: 'read',
      run: (context) => show(context.seat),
    }),
    update: action({
      signature: 'seat.update(loop_state?, identity?, system_prompt?)',
      fields: {
        loop_state: v.optional(seatText),
        identity: v.optional(seatText),
        system_prompt: v.optional(seatText),
      },
      logged: [],
      effect: 'write',
      run: ({ seats, seat }, { loop_state, identity, system_prompt }) =>
        show(
          seats.update(seat.name, {
            ...(loop_state === undefined ? {} : { loopState: loop_state }),
            ...(identity === undefined ? {} : { identity }),
            ...(system_prompt === undefined ? {} : { systemPrompt: system_prompt }),
          }),
        ),
    }),
  },
}
