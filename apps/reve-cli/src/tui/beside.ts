import type { Agent, AgentSession, ChannelEvent, HeartbeatEvent } from '@reve/agent'
import type { UiBlock } from './block.ts'

/** What runs beside the conversation of a session: heartbeats and channels. */
export type Services = AsyncDisposable & {
  readonly heartbeats: () => readonly { readonly task: string; readonly next: number }[]
}

const none: Services = { heartbeats: () => [], [Symbol.asyncDispose]: async () => undefined }

/** Starts them for a session that was recovered; `say` writes what a person should see. */
export function startServices(agent: Agent, session: AgentSession, say: (block: UiBlock) => void): Services {
  const notice = (text: string, level: 'info' | 'warning' = 'info'): void => say({ type: 'notice', text, level })
  try {
    const beats = agent.startHeartbeats(session, { onEvent: (event) => heartbeat(event, say, notice) })
    const channels =
      agent.info.channels.length === 0
        ? undefined
        : agent.startChannels(session, { onEvent: (event) => channel(event, say, notice) })
    return {
      heartbeats: () =>
        beats.status().flatMap(({ task, next }) => (next === undefined ? [] : [{ task: task.name, next }])),
      [Symbol.asyncDispose]: async () => {
        await channels?.close()
        await beats.close()
      },
    }
  } catch (error) {
    notice(error instanceof Error ? error.message : String(error), 'warning')
    return none
  }
}

type Notice = (text: string, level?: 'info' | 'warning') => void

function heartbeat(event: HeartbeatEvent, say: (block: UiBlock) => void, notice: Notice): void {
  switch (event.type) {
    case 'loaded': {
      const { added, changed, removed } = event
      const news = [
        ...added.map((name) => `+${name}`),
        ...changed.map((name) => `~${name}`),
        ...removed.map((name) => `-${name}`),
      ]
      if (news.length > 0) notice(`heartbeats: ${news.join(' ')}`)
      return
    }
    case 'problem':
      return notice(event.message, 'warning')
    case 'elsewhere':
      return notice('another process runs the heartbeats of this agent; when it ends, this one does')
    case 'deferred':
      return
    case 'started':
      return notice(`heartbeat ${event.beat.task.name} began`)
    case 'finished': {
      const { task, beat, message } = event
      if (message !== undefined) say({ type: 'inbox', from: `heartbeat ${task}`, text: message.text })
      else if (beat.outcome === 'silence') notice(`heartbeat ${task}: nothing to say`)
      else notice(`heartbeat ${task}: ${beat.outcome}${beat.detail === undefined ? '' : `: ${beat.detail}`}`, 'warning')
      return
    }
    default:
      event satisfies never
  }
}

function channel(event: ChannelEvent, say: (block: UiBlock) => void, notice: Notice): void {
  switch (event.type) {
    case 'received':
      return say({
        type: 'inbox',
        from: event.from === undefined ? event.channel : `${event.from} (${event.channel})`,
        text: event.text,
      })
    case 'answered':
      return event.answer.ok
        ? undefined
        : notice(`no answer for ${event.message.channel}: ${event.answer.text}`, 'warning')
    case 'replied':
      return
    case 'problem':
      return notice(event.channel === undefined ? event.message : `${event.channel}: ${event.message}`, 'warning')
    default:
      event satisfies never
  }
}
