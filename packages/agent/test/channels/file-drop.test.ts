import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { fileDropChannel } from '../../src/channels/file-drop.ts'
import { listening, newId } from './channel-support.ts'

/** A drop folder that is looked at when a test says so. */
function drop(files: Readonly<Record<string, string | Uint8Array>> = {}, limits: { readonly waiting?: number } = {}) {
  const root = mkdtempSync(join(tmpdir(), 'drop-'))
  const at = (path: string): string => join(root, 'channels/drop', path)
  mkdirSync(at('in'), { recursive: true })
  const put = (name: string, text: string | Uint8Array, seconds = 0): void => {
    writeFileSync(at(`in/.${name}`), text)
    utimesSync(at(`in/.${name}`), seconds, seconds)
    renameSync(at(`in/.${name}`), at(`in/${name}`))
  }
  for (const [name, text] of Object.entries(files)) put(name, text)
  const begin = () => {
    let look: () => void = () => undefined
    let asleep: () => void = () => undefined
    const sleeping = (): Promise<void> => new Promise((resolve) => (asleep = resolve))
    const first = sleeping()
    const channel = fileDropChannel({
      ...{ root, newId, maxBytes: 1000 },
      after: (_ms, signal) =>
        new Promise((resolve) => {
          look = resolve
          signal.addEventListener('abort', () => resolve())
          asleep()
        }),
    })
    const { store, close, signal, over } = listening(channel, limits, join(root, '.reve'))
    const looked = async (): Promise<void> => {
      const again = sleeping()
      look()
      await Promise.race([again, over])
    }
    const texts = (): readonly (readonly [string | undefined, string])[] => {
      const found: [string | undefined, string][] = []
      for (let next = store.next(); next !== undefined; next = store.next()) {
        found.push([next.from, next.text])
        store.answer(next.id, { ok: true, text: '' })
      }
      return found
    }
    return { channel, store, close, signal, looked, texts, ready: Promise.race([first, over]) }
  }
  const names = (part: string): readonly string[] =>
    readdirSync(at(part))
      .map((name) => name.replace(/^m_\d+~/, ''))
      .toSorted()
  return { root, at, put, begin, names }
}

describe('a file drop', () => {
  test('takes files in the order of their times, and moves them', async () => {
    const { put, begin, names } = drop()
    put('b.txt', 'first', 10)
    put('a.txt', 'second', 20)
    put('c.md', 'third /quit', 20)
    const { looked, texts, ready } = begin()
    await ready
    await looked()
    expect(texts()).toEqual([
      ['b.txt', 'first'],
      ['a.txt', 'second'],
      ['c.md', 'third /quit'],
    ])
    expect([names('in'), names('taking'), names('done')]).toEqual([[], [], ['a.txt', 'b.txt', 'c.md']])
    put('b.txt', 'first', 10)
    await looked()
    await looked()
    expect([texts(), names('done')]).toEqual([[['b.txt', 'first']], ['a.txt', 'b.txt', 'b.txt', 'c.md']])
  })

  test('waits until a file is whole, and leaves alone what is being written', async () => {
    const { at, put, begin, names } = drop({ 'x.tmp': 'x', 'y.part': 'x', 'z~': 'x' })
    const { looked, texts, ready } = begin()
    await ready
    writeFileSync(at('in/.hidden'), 'x')
    mkdirSync(at('in/folder'))
    put('slow', 'one')
    await looked()
    writeFileSync(at('in/slow'), 'one and two')
    await looked()
    expect(texts()).toEqual([])
    await looked()
    expect(texts()).toEqual([['slow', 'one and two']])
    expect(names('in')).toEqual(['.hidden', 'folder', 'x.tmp', 'y.part', 'z~'])
  })

  test('refuses what is no message, with the reason beside it', async () => {
    const { root, at, begin, names } = drop({
      large: 'x'.repeat(1001),
      bytes: new Uint8Array([0xff]),
      empty: ' \n',
      good: 'x',
    })
    writeFileSync(join(root, 'agent.lua'), 'secret')
    symlinkSync('../../../agent.lua', at('in/link'))
    const { looked, texts, ready } = begin()
    await ready
    await looked()
    expect(texts()).toEqual([['good', 'x']])
    const refused = ['bytes', 'empty', 'large', 'link']
    expect(names('refused')).toEqual(refused.flatMap((name) => [name, `${name}.why.txt`]))
    const why = readdirSync(at('refused'))
      .filter((name) => name.endsWith('.why.txt'))
      .map((name) => readFileSync(at(`refused/${name}`), 'utf8'))
      .join('')
    expect(why).toMatch(/UTF-8/)
    expect(why).not.toMatch(/taking|secret/)
  })

  test('takes up what an earlier process left half-way, once', async () => {
    const { at, put, begin, names } = drop({ one: 'one' })
    const first = begin()
    await first.ready
    await first.looked()
    await first.close()
    // As if it had been killed before the last move, and before it kept the other one.
    const [done = ''] = readdirSync(at('done'))
    renameSync(at(`done/${done}`), at(`taking/${done}`))
    put('two', 'two')
    renameSync(at('in/two'), at('taking/m_999999~two'))
    const again = begin()
    await again.ready
    expect([again.texts(), names('taking'), names('done')]).toEqual([
      [
        ['one', 'one'],
        ['two', 'two'],
      ],
      [],
      ['one', 'two'],
    ])
  })

  test('leaves files where they are while too many wait', async () => {
    const { put, begin, names } = drop({}, { waiting: 1 })
    put('a', 'a', 1)
    put('b', 'b', 2)
    const { looked, store, ready } = begin()
    await ready
    await looked()
    expect([names('done'), names('taking')]).toEqual([['a'], ['b']])
    store.answer(store.next()?.id ?? '', { ok: true, text: '' })
    await looked()
    expect([store.next()?.text, names('taking')]).toEqual(['b', []])
  })

  test('writes the answer under the name in done; a long name is cut', async () => {
    const long = `${'ä'.repeat(120)}.txt`
    const { at, begin } = drop({ [long]: 'x', 'b.txt': 'y' })
    const { channel, looked, store, signal, ready } = begin()
    await ready
    await looked()
    for (let next = store.next(); next !== undefined; next = store.next()) {
      const answer = { ok: next.text === 'x', text: `to ${next.text}` }
      store.answer(next.id, answer)
      // Twice, as after a crash.
      for (let n = 0; n < 2; n++) await channel.reply(next, answer, signal)
    }
    const out = readdirSync(at('out')).toSorted()
    expect(out.map((name) => name.replace(/\.(answer|failed)\.md$/, '')).toSorted()).toEqual(
      readdirSync(at('done')).toSorted(),
    )
    expect(out.map((name) => readFileSync(at(`out/${name}`), 'utf8')).toSorted()).toEqual(['to x\n', 'to y\n'])
    expect(out.filter((name) => name.endsWith('.failed.md'))).toHaveLength(1)
    expect(out.every((name) => name.isWellFormed() && !name.includes('\uFFFD'))).toBe(true)
  })
})
