/** The known word that `word` was probably meant to be, if one is near enough. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const allowed = Math.max(1, Math.floor(word.length / 3))
  let best: { readonly word: string; readonly distance: number } | undefined
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase())
    if (distance <= allowed && (best === undefined || distance < best.distance)) best = { word: candidate, distance }
  }
  return best?.word
}

/** ` (did you mean "x"?)`, or nothing when no known word is near. */
export function didYouMean(word: string, known: readonly string[]): string {
  const near = nearest(word, known)
  return near === undefined ? '' : ` (did you mean "${near}"?)`
}

/** Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours count one each. */
function editDistance(a: string, b: string): number {
  // Nothing that long is a misspelt word.
  if (a.length > 64 || b.length > 64) return Number.POSITIVE_INFINITY
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)]
  const at = (row: number, column: number): number => rows[row]?.[column] ?? 0
  for (let row = 1; row <= a.length; row++) {
    rows[row] = [row]
    for (let column = 1; column <= b.length; column++) {
      const same = a[row - 1] === b[column - 1]
      let value = Math.min(at(row - 1, column) + 1, at(row, column - 1) + 1, at(row - 1, column - 1) + (same ? 0 : 1))
      if (row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]) {
        value = Math.min(value, at(row - 2, column - 2) + 1)
      }
      rows[row]?.push(value)
    }
  }
  return at(a.length, b.length)
}
