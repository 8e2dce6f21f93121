import { isReveError } from '@reve/base'
import type { Harness } from '@reve/harness'
import type { SessionLog } from '@reve/session-log'
import { acceptedMessages } from '../log-text.ts'
import { hasAttribute, quoted } from '../quoted.ts'
import { HeartbeatError } from './errors.ts'
import type { Beat, HeartbeatOptions } from './runner.ts'

const ELEMENT = 'heartbeat'

/** What a beat says to the model. The task's text is the agent's own; what it may answer is not. */
export function beatPrompt({ task, due, missed }: Pick<Beat, 'task' | 'due' | 'missed'>): string {
  const at = new Date(due).toISOString()
  const late =
    missed === 0
      ? ''
      : `\nIt was due ${missed === 1 ? 'once' : `${missed} times`} more since, which this beat stands for.`
  return `This is the heartbeat "${task.name}", due at ${at}: you work by yourself, nobody reads along.${late}

${task.prompt}

End with an answer that is one of these and nothing else:
SILENCE
  when there is nothing that anybody has to know
Message: <text>
  to say something when the conversation next goes on
Steer: <text>
  to say something to the work that goes on at this moment`
}

/**
 * Beats as runs of a session: each on a lane of its own, without the conversation of `lane`; what they say goes there.
 *
 * @param lane of the conversation (default `main`).
 */
export function sessionBeats(
  { harness, log }: { readonly harness: Harness; readonly log: SessionLog },
  { lane = 'main' }: { readonly lane?: string } = {},
): Pick<HeartbeatOptions, 'run' | 'deliver' | 'isBusy'> {
  return {
    isBusy: () => harness.status(lane).state !== 'idle',
    run: async (beat, signal) => {
      const { name, continues } = beat.task
      const { outcome, text, error, reason } = await harness.prompt(beatPrompt(beat), {
        lane: `heartbeat-${name}`,
        signal,
        ...(continues ? {} : { from: null }),
      })
      // Half a message would be taken for what it says.
      if (outcome === 'completed' && reason === 'length') {
        throw new HeartbeatError('run_failed', 'its answer was cut off where the model may write no more at once')
      }
      if (outcome === 'completed') return text
      throw new HeartbeatError('run_failed', `its run ${outcome}: ${error?.message ?? reason ?? 'no reason was given'}`)
    },
    deliver: async (message, task) => {
      if (wasDelivered(log, message.id)) return
      const text = quoted(ELEMENT, { name: task, id: message.id }, message.text)
      if (message.kind === 'steer' && harness.status(lane).state === 'running') {
        try {
          await harness.steer(text, { lane })
          return
        } catch (error) {
          // It ended in this moment.
          if (!isIdle(error)) throw error
        }
      }
      await harness.nextRun(text, { lane })
    },
  }
}

const isIdle = (error: unknown): boolean => isReveError(error) && error.code === 'lane_idle'

/** Whether the log has accepted the message of that beat, and nobody has taken it back. */
const wasDelivered = (log: SessionLog, id: string): boolean =>
  acceptedMessages(log, (text) => hasAttribute(text, ELEMENT, 'id', id)).length > 0
