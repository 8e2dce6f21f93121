const LF = 0x0a

/**
 * Lines of a stream of bytes, cut at line feeds alone, as a session is. One that is longer than `mostBytes` is passed over and counted: memory
 * is bound by that.
 */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  mostBytes: number,
  tooLong: () => void = () => undefined,
): AsyncGenerator<string, void, void> {
  let held: Uint8Array[] = []
  let bytes = 0
  let over = false
  const add = (piece: Uint8Array): void => {
    bytes += piece.length
    if (bytes > mostBytes) {
      over = true
      held = []
    } else held.push(piece)
  }
  const take = (): string | undefined => {
    const line = over ? undefined : Buffer.concat(held).toString('utf8')
    if (over) tooLong()
    held = []
    bytes = 0
    over = false
    return line
  }
  for await (const chunk of chunks) {
    let from = 0
    for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, from)) {
      add(chunk.subarray(from, end))
      from = end + 1
      const line = take()
      if (line !== undefined) yield line
    }
    if (from < chunk.length) add(chunk.subarray(from))
  }
  const last = take()
  if (last !== undefined && last !== '') yield last
}
