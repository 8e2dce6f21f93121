import { describe, expect, test } from 'vitest'
import { kvmImpossible } from '../src/qemu/accelerator.ts'
import { chooseMirrors } from '../src/qemu/apt.ts'
import { xzPayload } from '../src/qemu/kernel.ts'

describe("the mirror of this machine's own apt", () => {
  const targets = (...rows: string[]): string => rows.map((row) => `${row}\n`).join('')

  test('is taken for another suite, with its security updates', () => {
    const rows = targets(
      'Packages|https://tools.example/apt/|stable-tools|main',
      'Translations|https://mirror.example/debian/|bookworm|main',
      'Packages|https://mirror.example/debian/|bookworm|main',
      'Packages|https://mirror.example/debian/|bookworm-updates|main',
      'Packages|https://security.example/debian-security/|bookworm-security|main',
    )
    expect(chooseMirrors(rows, 'trixie')).toEqual([
      { uri: 'https://mirror.example/debian/', suite: 'trixie' },
      { uri: 'https://security.example/debian-security/', suite: 'trixie-security' },
    ])
    expect(chooseMirrors(rows, 'sid')).toEqual([{ uri: 'https://mirror.example/debian/', suite: 'sid' }])
  })

  test('is none where only others are', () => {
    expect(chooseMirrors(targets('Packages|https://x.example/ubuntu/|noble|main', ''), 'trixie')).toEqual([])
  })
})

describe('KVM', () => {
  const intel = 'processor\t: 0\nflags\t\t: fpu vme vmx sse\n'
  test.each([
    ['is tried where device and processor say so', intel, 'usable', undefined],
    ['is not where the processor shows nothing', 'flags\t\t: fpu vme\n', 'usable', /vmx or svm/],
    ['is not without a device', intel, 'missing', /no \/dev\/kvm/],
    ['is not where the device is closed', intel, 'forbidden', /group kvm/],
  ] as const)('%s', (_, cpuinfo, device, expected) => {
    const reason = kvmImpossible(cpuinfo, device)
    if (expected === undefined) expect(reason).toBeUndefined()
    else expect(reason).toMatch(expected)
  })
})

test('a kernel that is not packed with xz is taken as it is', () => {
  expect(xzPayload(Buffer.alloc(1000))).toBeUndefined()
  expect(xzPayload(Buffer.from('short'))).toBeUndefined()
})
