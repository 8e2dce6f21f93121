import type { MicroVmEvent } from '@reve/sandbox-microvm'
import { expect, test } from 'vitest'
import { vmProgress } from '../src/vm-progress.ts'

/** What these events put on the terminal: notes, and the moving line as `…text`, or `…` where it ends. */
function shown(...events: readonly MicroVmEvent[]): readonly string[] {
  const said: string[] = []
  const progress = vmProgress({
    result: () => undefined,
    clear: () => undefined,
    status: (_, text) => said.push(`…${text ?? ''}`),
    note: (...pieces) => said.push(pieces.map((piece) => (typeof piece === 'string' ? piece : piece.text)).join('')),
  })
  for (const event of events) progress(event)
  return said
}

test('a start shows what it is at while it lasts, and afterwards what took a while', () => {
  const image = { type: 'stage', stage: 'image' } as const
  const boot = { type: 'stage', stage: 'boot' } as const
  expect(
    shown(
      { ...image, state: 'start', label: 'building the image' },
      { ...image, state: 'progress', label: 'building the image: 12 of 30 packages' },
      { ...image, state: 'done', label: 'image built', ms: 61_400 },
      { ...boot, state: 'start', label: 'booting' },
      { ...boot, state: 'done', label: 'booted', ms: 1800 },
      { ...boot, state: 'done', label: 'restored', ms: 300 },
      { ...boot, state: 'failed', label: 'bootstrap failed' },
      { type: 'notice', text: 'the processor is emulated' },
    ),
  ).toEqual([
    '…building the image',
    '…building the image: 12 of 30 packages',
    '…',
    '  ✓ image built (61s)',
    '…booting',
    '…',
    '  ✓ booted (1.8s)',
    '…',
    '…',
    '  ✗ bootstrap failed',
    '  ! the processor is emulated',
  ])
})
