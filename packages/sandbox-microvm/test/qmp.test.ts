import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { Duplex } from 'node:stream'
import { afterAll, describe, expect, test } from 'vitest'
import { MicroVmError } from '../src/errors.ts'
import { findProgram } from '../src/host-process.ts'
import { connectQmp } from '../src/qemu/qmp.ts'
import { folder, removeFolders } from './helpers.ts'

afterAll(removeFolders)

/** A QEMU that says what it is told to, and what it was asked. */
function fake(): {
  stream: Duplex
  say: (...lines: readonly (object | string)[]) => void
  asked: string[]
  end: () => void
} {
  const asked: string[] = []
  const stream = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _, done) => {
      asked.push(...chunk.toString().trim().split('\n'))
      done()
    },
  })
  const say = (...lines: readonly (object | string)[]): void =>
    void stream.push(lines.map((line) => (typeof line === 'string' ? line : `${JSON.stringify(line)}\r\n`)).join(''))
  return { stream, say, asked, end: () => void stream.push(null) }
}
const greeting = {
  QMP: { version: { qemu: { major: 7, minor: 2, micro: 22 }, package: '(x)' }, capabilities: ['oob'] },
}

const failure = async (work: Promise<unknown>): Promise<string> => {
  const error: unknown = await work.then(
    () => 'it worked',
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(MicroVmError)
  return error instanceof MicroVmError ? `${error.code}: ${error.message}` : ''
}

describe("QEMU's control channel", () => {
  test('asks for capabilities first, and knows whose an answer is', async () => {
    const { stream, say, asked } = fake()
    const qmp = connectQmp(stream)
    const [one, two] = [qmp.execute('one', { a: 1 }), qmp.execute('two')]
    say(greeting, { return: {}, id: 1 }, { event: 'RESUME', timestamp: {} })
    say('{"return": {"x": ', '2}, "id": 3}\n{"return": [], "id": 2}\n')
    expect([await two, await one, await qmp.version]).toEqual([{ x: 2 }, [], '7.2.22 (x)'])
    expect(asked.map((line) => JSON.parse(line) as unknown)).toEqual([
      { execute: 'qmp_capabilities', arguments: {}, id: 1 },
      { execute: 'one', arguments: { a: 1 }, id: 2 },
      { execute: 'two', arguments: {}, id: 3 },
    ])
  })

  test('gives a refusal to whoever asked, in words that a terminal may show', async () => {
    const { stream, say } = fake()
    const qmp = connectQmp(stream)
    const refused = qmp.execute('x')
    say(greeting, { return: {}, id: 1 }, { error: { class: 'GenericError', desc: 'no \u001b[31msuch' }, id: 2 })
    expect(await failure(refused)).toMatch(/^boot_failed: QEMU refused: no [^\u001b]*such$/)
    const next = qmp.execute('y')
    say({ return: 1, id: 3 })
    expect(await next).toBe(1)
  })

  test('waits for the event that is wanted, and for no other', async () => {
    const { stream, say } = fake()
    const qmp = connectQmp(stream)
    const event = qmp.event('MIGRATION', (data) => JSON.stringify(data) === '{"status":"completed"}')
    say(greeting, { event: 'STOP' }, { event: 'MIGRATION', data: { status: 'active' } })
    say({ event: 'OTHER', data: { status: 'completed' } }, { event: 'MIGRATION', data: { status: 'completed' } })
    expect(await event).toEqual({ status: 'completed' })
  })

  test.each<[string, (qemu: ReturnType<typeof fake>) => void]>([
    ['ends', ({ end }) => end()],
    ['breaks', ({ stream }) => stream.destroy(new Error('EPIPE'))],
    ['says what is no JSON', ({ say }) => say('hello\n')],
    ['says JSON that is no message', ({ say }) => say({ hello: 1 })],
    ['answers what nobody asked', ({ say }) => say({ return: {}, id: 99 })],
    ['never ends a line', ({ say }) => say('x'.repeat(1024 * 1024 + 1))],
  ])('fails everything once when QEMU %s', async (_, act) => {
    const qemu = fake()
    const qmp = connectQmp(qemu.stream)
    const open = [qmp.execute('x'), qmp.event('MIGRATION', () => true), qmp.version].map(failure)
    act(qemu)
    for (const message of await Promise.all(open)) expect(message).toMatch(/^boot_failed: QEMU/)
    expect(await failure(qmp.execute('y'))).toMatch(/^boot_failed: /)
    expect(await failure(qmp.event('z', () => true))).toMatch(/^boot_failed: /)
    qmp.quit()
    expect(qemu.stream.destroyed).toBe(true)
  })

  const qemu = findProgram('qemu-system-x86_64')
  if (qemu === undefined) console.warn('a test is skipped: there is no QEMU here')
  test.skipIf(qemu === undefined)('is that of a real one', async () => {
    const path = join(folder(), 'qmp')
    const server = createServer()
    server.listen(path)
    await once(server, 'listening')
    const child = spawn(qemu ?? '', [
      ...['-M', 'none', '-nodefaults', '-display', 'none'],
      ...['-chardev', `socket,id=m,path=${path}`, '-mon', 'chardev=m,mode=control'],
    ])
    const [socket] = (await once(server, 'connection')) as [Socket]
    const qmp = connectQmp(socket)
    expect(await qmp.version).toMatch(/^\d+\.\d+\.\d+/)
    expect(await qmp.execute('query-status')).toMatchObject({ running: true })
    expect(await failure(qmp.execute('no-such-thing'))).toMatch(/no-such-thing/)
    const stopped = qmp.event('STOP', () => true)
    await qmp.execute('stop')
    await stopped
    const ended = once(child, 'exit')
    const lost = failure(qmp.event('MIGRATION', () => true))
    qmp.quit()
    expect((await ended)[0]).toBe(0)
    expect(await lost).toMatch(/control channel/)
    server.close()
  })
})
