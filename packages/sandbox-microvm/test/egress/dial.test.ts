import { PassThrough } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { createAllowList } from '../../src/egress/allow-list.ts'
import { type Connect, connectTcp, createDialler, type Resolve, resolveName } from '../../src/egress/dial.ts'

const make = (connect: Connect, resolve: Resolve, now = Date.now, timeoutMs = 2000) =>
  createDialler({ allow: createAllowList([]), connect, resolve, now, timeoutMs })

const never = new Promise<never>(() => undefined)

describe('a dialler', () => {
  test('goes on to the next address when one fails or is slow, and closes what comes late', async () => {
    const tried: string[] = []
    const late = new PassThrough()
    const dialler = make(
      async ({ address }) => {
        tried.push(address)
        if (address === '1.1.1.1') throw new Error('refused')
        if (address === '1.1.1.2') return new Promise((resolve) => setTimeout(() => resolve(late), 600))
        return new PassThrough()
      },
      async () => ['1.1.1.1', '10.0.0.1', '1.1.1.2', '1.1.1.3', '1.1.1.4'],
    )
    expect(await dialler.toName('a.test', 443)).toMatchObject({ ok: true, address: '1.1.1.3' })
    expect(tried).toEqual(['1.1.1.1', '1.1.1.2', '1.1.1.3'])
    while (!late.destroyed) await new Promise((resolve) => setTimeout(resolve, 20))
  })

  test('keeps answers for a while, but not failures', async () => {
    let now = 0
    let asked = 0
    let fails = true
    const dialler = make(
      async () => new PassThrough(),
      async () => {
        asked += 1
        if (fails) throw Object.assign(new Error('no'), { code: 'EAI_AGAIN' })
        return ['1.1.1.1']
      },
      () => now,
    )
    expect(await dialler.toName('a.test', 1)).toEqual({ ok: false, reason: 'unresolved', code: 'EAI_AGAIN' })
    fails = false
    await dialler.toName('a.test', 1)
    now = 29_999
    await dialler.toName('a.test', 1)
    expect(asked).toBe(2)
    now = 30_000
    await dialler.toName('a.test', 1)
    expect(asked).toBe(3)
  })

  test('looks at every address anew: a name that moves to a private one is refused', async () => {
    let now = 0
    let addresses = ['1.1.1.1']
    const dialler = make(
      async () => new PassThrough(),
      async () => addresses,
      () => now,
    )
    expect(await dialler.toName('a.test', 1)).toMatchObject({ ok: true })
    addresses = ['127.0.0.1', '169.254.169.254']
    now = 60_000
    expect(await dialler.toName('a.test', 1)).toEqual({ ok: false, reason: 'private_address' })
  })

  test('gives up when the time is over, or when it is closed', async () => {
    const signals: AbortSignal[] = []
    const hang: Connect = ({ signal }) => {
      signals.push(signal)
      return never
    }
    expect(await make(hang, async () => ['1.1.1.1'], Date.now, 30).toName('a.test', 1)).toMatchObject({
      ok: false,
      reason: 'timeout',
    })
    expect(signals[0]?.aborted).toBe(true)
    const dialler = make(hang, async () => ['1.1.1.1'])
    const pending = dialler.toAddress('1.1.1.1', 1)
    dialler.close()
    expect(await pending).toMatchObject({ ok: false })
  })

  test('has a real resolver and real sockets by default', async () => {
    expect(await resolveName('localhost')).toEqual(
      expect.arrayContaining([expect.stringMatching(/^(?:127\.0\.0\.1|::1)$/)]),
    )
    await expect(connectTcp({ address: '127.0.0.1', port: 1, signal: new AbortController().signal })).rejects.toThrow(
      'ECONNREFUSED',
    )
  })
})
