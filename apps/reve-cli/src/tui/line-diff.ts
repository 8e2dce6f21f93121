/** A line of a comparison. */
export type DiffLine = { readonly kind: 'same' | 'added' | 'removed'; readonly text: string }

/** Beyond so many cells of the table a middle part is shown as replaced as a whole. */
const mostCells = 250_000

/** Compares two texts line by line; lines that both begin or end with cost nothing. */
export function diffLines(before: string, after: string): readonly DiffLine[] {
  const a = before === '' ? [] : before.split('\n')
  const b = after === '' ? [] : after.split('\n')
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail])
    tail += 1
  const same = (lines: readonly string[]): readonly DiffLine[] => lines.map((text) => ({ kind: 'same', text }))
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ]
}

function middle(a: readonly string[], b: readonly string[]): readonly DiffLine[] {
  if (a.length === 0 || b.length === 0 || a.length * b.length > mostCells) {
    return [
      ...a.map((text): DiffLine => ({ kind: 'removed', text })),
      ...b.map((text): DiffLine => ({ kind: 'added', text })),
    ]
  }
  // The longest common subsequence, from the end, so that it is read off from the start.
  const width = b.length + 1
  const lengths = new Uint32Array((a.length + 1) * width)
  const at = (i: number, j: number): number => lengths[i * width + j] ?? 0
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
    }
  }
  const lines: DiffLine[] = []
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: 'same', text: a[i] ?? '' })
      i += 1
      j += 1
    } else if (i < a.length && (j >= b.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ kind: 'removed', text: a[i] ?? '' })
      i += 1
    } else {
      lines.push({ kind: 'added', text: b[j] ?? '' })
      j += 1
    }
  }
  return lines
}

/** Leaves out lines that are the same, but for `around` beside what changed; what is left out is `undefined`. */
export function hunks(lines: readonly DiffLine[], around = 2): readonly (DiffLine | undefined)[] {
  const near = lines.map(({ kind }) => kind !== 'same')
  const shown = lines.map((_, index) => near.slice(Math.max(0, index - around), index + around + 1).some(Boolean))
  const out: (DiffLine | undefined)[] = []
  for (const [index, line] of lines.entries()) {
    if (shown[index]) out.push(line)
    else if (index === 0 || shown[index - 1]) out.push(undefined)
  }
  return out
}
