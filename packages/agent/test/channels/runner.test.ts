import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Answer, Channel, ChannelInbox, InboxMessage } from '../../src/channels/channel.ts'
import type { Conversation } from '../../src/channels/conversation.ts'
import { type ChannelEvent, type Channels, startChannels } from '../../src/channels/runner.ts'
import { codeChannel } from '../../src/channels/scripted.ts'

const newFile = (): string => join(mkdtempSync(join(tmpdir(), 'channels-')), '.reve/channels.db')
const after = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, Math.min(ms, 5))
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()))
  })
let ids = 0

/** A channel in memory: what was replied, and a way to say something once it listens. */
function memory(name: string) {
  const replied: { readonly text: string; readonly answer: Answer }[] = []
  const begun = Promise.withResolvers<ChannelInbox>()
  const channel: Channel = {
    name,
    start: (inbox, signal) => {
      begun.resolve(inbox)
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve()))
    },
    reply: async (message, answer) => void replied.push({ text: message.text, answer }),
  }
  return { channel, replied, inbox: begun.promise }
}

const echo = (parts: Partial<Conversation> = {}): Conversation => ({
  id: 'c1',
  find: async () => 'absent',
  deliver: async ({ text }) => ({ ok: true, text: `re: ${text}` }),
  follow: async () => ({ ok: true, text: 'followed' }),
  ...parts,
})

function start(channels: readonly Channel[], conversation: Conversation, file = newFile(), now = () => 0) {
  const events: ChannelEvent[] = []
  let told: () => void = () => undefined
  const running: Channels = startChannels({
    ...{ file, channels, conversation, now, after },
    newId: () => `m_${++ids}`,
    onEvent: (event) => {
      events.push(event)
      told()
    },
  })
  onTestFinished(() => running.close())
  /** Waits for so many events of a type. */
  const heard = async (type: ChannelEvent['type'], count: number): Promise<readonly ChannelEvent[]> => {
    for (;;) {
      const found = events.filter((event) => event.type === type)
      if (found.length >= count) return found
      await new Promise<void>((resolve) => (told = resolve))
    }
  }
  return { events, heard, close: () => running.close(), file }
}

describe('channels', () => {
  test('have their messages answered in order, each over its own', async () => {
    const [a, b] = [memory('a'), memory('b')]
    const delivered: InboxMessage[] = []
    const conversation = echo({
      deliver: async (message) => {
        delivered.push(message)
        return { ok: true, text: `re: ${message.text}` }
      },
    })
    const { heard } = start([a.channel, b.channel], conversation)
    const [toA, toB] = [await a.inbox, await b.inbox]
    for (let n = 0; n < 10; n++) (n % 3 === 0 ? toA : toB).receive({ text: `${n}`, from: 'Ann' })
    await heard('replied', 10)
    expect(delivered.map(({ text }) => text)).toEqual(Array.from({ length: 10 }, (_, n) => `${n}`))
    expect(a.replied.map(({ text, answer }) => [text, answer.text])).toEqual(
      ['0', '3', '6', '9'].map((n) => [n, `re: ${n}`]),
    )
    expect(b.replied).toHaveLength(6)
    expect(await heard('received', 10)).toMatchObject([
      { channel: 'a', from: 'Ann', text: '0' },
      ...Array.from({ length: 9 }, () => ({})),
    ])
  })

  test('lose nothing when the process ends in the midst: what was delivered is followed, not said again', async () => {
    const first = memory('a')
    const entered = Promise.withResolvers<void>()
    const one = start(
      [first.channel],
      echo({
        deliver: async (_message, signal) => {
          entered.resolve()
          await new Promise((resolve) => signal.addEventListener('abort', resolve))
          return undefined
        },
      }),
    )
    const inbox = await first.inbox
    for (const text of ['1', '2']) inbox.receive({ text })
    await entered.promise
    await one.close()

    const again = memory('a')
    const looked: string[] = []
    const two = start(
      [again.channel],
      echo({
        find: async (_id, where) => {
          looked.push(where)
          return 'here'
        },
      }),
      one.file,
    )
    await two.heard('replied', 2)
    expect(looked).toEqual(['c1'])
    expect(again.replied.map(({ answer }) => answer.text)).toEqual(['followed', 're: 2'])
  })

  test('say of a message whose conversation was left that there is no answer', async () => {
    const first = memory('a')
    const failed = start([first.channel], echo({ deliver: () => Promise.reject(new Error('no')) }))
    ;(await first.inbox).receive({ text: '1' })
    await failed.heard('problem', 1)
    await failed.close()
    const again = memory('a')
    const later = start(
      [again.channel],
      echo({ id: 'c2', find: async (_id, where) => (where === 'c1' ? 'elsewhere' : 'absent') }),
      failed.file,
    )
    await later.heard('replied', 1)
    expect(again.replied).toMatchObject([{ answer: { ok: false } }])
  })

  test('go on after a failure, which is told once', async () => {
    const { channel, inbox, replied } = memory('a')
    let [deliveries, replies, starts] = [0, 0, 0]
    const { heard, events } = start(
      [
        {
          ...channel,
          start: async (own, signal) => {
            if (++starts < 3) throw new Error('no port')
            return channel.start(own, signal)
          },
          reply: async (message, answer, signal) => {
            if (++replies < 4) throw new Error('no network')
            return channel.reply(message, answer, signal)
          },
        },
      ],
      echo({
        deliver: async () => {
          if (++deliveries < 4) throw new Error('no disk')
          return { ok: true, text: 'at last' }
        },
      }),
    )
    ;(await inbox).receive({ text: '1' })
    await heard('replied', 1)
    expect(replied).toMatchObject([{ answer: { text: 'at last' } }])
    expect(events.flatMap((event) => (event.type === 'problem' ? [event.message] : []))).toEqual([
      'no port',
      'no disk',
      'no network',
    ])
  })

  test('give an answer up that nobody takes for a day, and go on with the next', async () => {
    const { channel, inbox, replied } = memory('a')
    let time = 0
    const reply: Channel['reply'] = async (message, answer, signal) => {
      time += 10 * 3600_000
      if (message.text === '1') throw new Error('gone')
      return channel.reply(message, answer, signal)
    }
    const { heard, events } = start([{ ...channel, reply }], echo(), newFile(), () => time)
    for (const text of ['1', '2']) (await inbox).receive({ text })
    await heard('replied', 1)
    expect(replied.map(({ text }) => text)).toEqual(['2'])
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'problem', message: expect.stringContaining('given up: gone') }),
    )
  })

  test('belong to one process; have names that are names, each once', async () => {
    const { file } = start([], echo())
    const code = (work: () => unknown) => {
      try {
        return work()
      } catch (error) {
        return error instanceof Error && 'code' in error ? error.code : error
      }
    }
    expect(code(() => start([], echo(), file))).toBe('locked')
    for (const name of ['', 'A', '../x', 'x'.repeat(65), '1'])
      expect(code(() => start([memory(name).channel], echo()))).toBe('bad_channel')
    expect(code(() => start([memory('a').channel, memory('a').channel], echo()))).toBe('bad_channel')
  })
})

test('a channel made of code looks for messages, keeps how far it read, and brings answers', async () => {
  const source = ['one', 'two', 'three']
  const brought: string[] = []
  const code = codeChannel(
    {
      name: 'lua',
      everyMs: 1,
      poll: async (host) => {
        const read = host.state.get('read')
        const next = typeof read === 'number' ? read : 0
        const text = source[next]
        if (text !== undefined) host.receive({ text, key: `${next}` }, { read: next + 1 })
      },
      reply: async (message, answer, host) => {
        brought.push(`${message.key} ${answer.text} ${host.state.get('read') !== undefined}`)
      },
    },
    { after },
  )
  const { heard } = start([code], echo())
  await heard('replied', 3)
  expect(brought).toEqual(['0 re: one true', '1 re: two true', '2 re: three true'])
})
