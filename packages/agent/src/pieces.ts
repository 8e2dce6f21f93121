/** A piece that is longer than this is dropped. */
const longestPiece = 16 << 20

/** Takes bytes as they come and gives the pieces that end with `end`, without it. */
export function createPieces(end: number, take: (piece: Uint8Array) => void): (chunk: Uint8Array) => void {
  let waiting: Uint8Array[] = []
  let length = 0
  return (chunk) => {
    let from = 0
    for (let at = chunk.indexOf(end); at >= 0; at = chunk.indexOf(end, from)) {
      const piece = chunk.subarray(from, at)
      if (length + piece.length <= longestPiece) take(waiting.length === 0 ? piece : Buffer.concat([...waiting, piece]))
      waiting = []
      length = 0
      from = at + 1
    }
    length += chunk.length - from
    if (length <= longestPiece) waiting.push(Uint8Array.from(chunk.subarray(from)))
    else waiting = []
  }
}
