import type { ChannelEvent, HeartbeatEvent } from '@reve/agent'
import { sanitiseLine } from '@reve/base'
import { paint, type Output } from './output.ts'
import { count } from './table.ts'

const shownColumns = 200

/** Says what goes on with the heartbeats. */
export function heartbeatNotes(output: Output): (event: HeartbeatEvent) => void {
  return (event) => {
    switch (event.type) {
      case 'loaded': {
        const { tasks, added, changed, removed } = event
        const news = [
          ...added.map((name) => `+${name}`),
          ...changed.map((name) => `~${name}`),
          ...removed.map((name) => `-${name}`),
        ]
        output.note(
          paint('dim', '  ♥ '),
          `${count(tasks.length, 'task')}${news.length === 0 ? '' : `: ${sanitiseLine(news.join(' '), shownColumns)}`}`,
        )
        return
      }
      case 'problem':
        output.note(paint('yellow', '  ! '), event.message)
        return
      case 'elsewhere':
        output.note(
          paint('yellow', '  ! '),
          `another process${event.pid === undefined ? '' : ` (${event.pid})`} runs the heartbeats of this agent; when it ends, this one does`,
        )
        return
      case 'deferred':
        output.note(paint('dim', '  ♥ '), `${event.task} waits: the agent is at work`)
        return
      case 'started':
        output.note(paint('dim', '  ♥ '), paint('bold', event.beat.task.name))
        return
      case 'finished': {
        const { task, beat, message } = event
        const isBad = beat.outcome === 'error' || beat.outcome === 'timeout' || beat.outcome === 'interrupted'
        output.note(
          paint('dim', '  ♥ '),
          `${task}: `,
          isBad ? paint('red', beat.outcome) : beat.outcome,
          message === undefined ? '' : `: ${sanitiseLine(message.text, shownColumns)}`,
          beat.detail === undefined ? '' : `: ${sanitiseLine(beat.detail, shownColumns)}`,
        )
        return
      }
      default:
        return event satisfies never
    }
  }
}

/** Says what goes on with the channels. */
export function channelNotes(output: Output): (event: ChannelEvent) => void {
  return (event) => {
    switch (event.type) {
      case 'received': {
        const from = event.from === undefined ? event.channel : `${event.from} (${event.channel})`
        output.note(paint('blue', '  ✉ '), sanitiseLine(`from ${from}: ${event.text}`, shownColumns))
        return
      }
      case 'answered':
        output.note(
          paint('blue', '  ✉ '),
          event.answer.ok ? 'answer: ' : paint('red', 'no answer: '),
          sanitiseLine(event.answer.text, shownColumns),
        )
        return
      case 'replied':
        return
      case 'problem':
        output.note(
          paint('yellow', '  ! '),
          event.channel === undefined ? event.message : `${event.channel}: ${event.message}`,
        )
        return
      default:
        event satisfies never
    }
  }
}
