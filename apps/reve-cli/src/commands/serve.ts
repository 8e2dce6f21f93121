import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import {
  type Agent,
  type AgentSession,
  type Channel,
  fileDropChannel,
  httpChannel,
  sessionBeats,
  sessionConversation,
  startChannels,
  startHeartbeats,
} from '@reve/agent'
import { codeOf, createIdSource } from '@reve/base'
import { UsageError, type ServeCommand } from '../arguments.ts'
import { agentHere, type Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { paint } from '../output.ts'
import { sayRecovery } from '../recovery-notes.ts'
import { createRunView } from '../run-view.ts'
import { channelNotes, heartbeatNotes } from '../serve-notes.ts'
import { sessionFile } from '../session-files.ts'

/** What its programs show; in the environment, where other users of the machine do not see it. */
const TOKEN = 'REVE_HTTP_TOKEN'

/** `reve serve`: until a signal, which is the way to end it and no failure. */
export async function serve(context: Context, command: ServeCommand): Promise<number> {
  const { output, signal } = context
  const token = command.http === undefined ? '' : tokenOf(context)
  await using agent = await agentHere(context)
  await using session = await open(agent, context, command.session)
  const { harness } = session
  if (command.json) harness.subscribe((event) => output.result(JSON.stringify(event)))
  else harness.subscribe(createRunView(output))
  const recovery = await harness.recover()
  if (!command.json) sayRecovery(recovery, session, output)
  signal.throwIfAborted()
  const around = { agent, session, context, command }
  await using services = new AsyncDisposableStack()
  if (command.channels) services.use(channels(around, token))
  if (command.heartbeats) services.use(heartbeats(around))
  if (!command.json) {
    const what = [...(command.heartbeats ? ['heartbeats'] : []), ...(command.channels ? ['channels'] : [])]
    output.note(paint('green', 'serving '), `${agent.info.root}: ${what.join(', ')}; Ctrl-C stops`)
  }
  await aborted(signal)
  return exitCode.done
}

type Around = {
  readonly agent: Agent
  readonly session: AgentSession
  readonly context: Context
  readonly command: ServeCommand
}

function tokenOf({ env }: Context): string {
  const token = env[TOKEN] ?? ''
  if (token === '') throw new UsageError(`--http needs a token: set ${TOKEN} to 16 characters or more`, 'serve')
  return token
}

async function open(agent: Agent, { folder }: Context, word: string | undefined): Promise<AgentSession> {
  if (word !== undefined) return agent.openSession({ session: { file: await sessionFile(folder, word) } })
  try {
    return await agent.openSession({ session: 'newest' })
  } catch (error) {
    if (codeOf(error) !== 'no_session') throw error
    return agent.openSession({ session: 'new' })
  }
}

const newId = createIdSource({ now: Date.now, random: randomBytes })
const clock = {
  now: Date.now,
  after: (ms: number, signal: AbortSignal): Promise<void> =>
    setTimeout(ms, undefined, { signal }).catch(() => undefined),
}

/** What changed in the agent's files counts from this run on. */
async function refresh({ agent, context: { output } }: Around): Promise<void> {
  for (const note of await agent.refresh()) output.note(paint('yellow', '  ! '), note)
}

const lines =
  ({ output }: Context, type: string) =>
  (event: object): void =>
    output.result(JSON.stringify({ v: 1, type, event }))

function heartbeats(around: Around): AsyncDisposable {
  const { agent, session, context, command } = around
  const beats = sessionBeats(session)
  return startHeartbeats({
    ...beats,
    ...clock,
    workspace: join(agent.info.root, 'workspace'),
    stateFile: join(agent.info.root, '.reve', 'heartbeats.json'),
    run: async (beat, signal) => {
      await refresh(around)
      return beats.run(beat, signal)
    },
    onEvent: command.json ? lines(context, 'heartbeat') : heartbeatNotes(context.output),
    newId: () => newId('beat_'),
  })
}

function channels(around: Around, token: string): AsyncDisposable {
  const { agent, session, context, command } = around
  const { root } = agent.info
  const conversation = sessionConversation(session, clock)
  const onEvent = command.json ? lines(context, 'channel') : channelNotes(context.output)
  const onListening = (port: number): void =>
    context.output.note(paint('dim', '  ✉ '), `http listens on 127.0.0.1:${port}`)
  // What agent.lua says counts, unless the command line says otherwise.
  if (command.http === undefined && agent.info.channels.length > 0)
    return agent.startChannels(session, { onEvent, onListening })
  const all: Channel[] = [fileDropChannel({ ...clock, root, newId: () => newId('') })]
  if (command.http !== undefined) {
    all.push(httpChannel({ ...clock, port: command.http, token, onListening }))
  }
  return startChannels({
    ...clock,
    file: join(root, '.reve', 'channels.db'),
    channels: all,
    conversation: {
      ...conversation,
      deliver: async (message, signal) => {
        await refresh(around)
        return conversation.deliver(message, signal)
      },
    },
    onEvent,
    newId: () => newId('m_'),
  })
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
