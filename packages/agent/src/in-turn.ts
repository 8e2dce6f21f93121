/** The end of the last work that was begun for each thing. */
const ends = new WeakMap<object, Promise<unknown>>()

/**
 * Does `work` when all that was begun before for the same `thing` has ended, well or not: reading a file, changing it and
 * writing it back is one step for whoever does the same.
 *
 * @throws what `work` throws, or the signal's reason when it was aborted before its turn came.
 */
export async function inTurn<T>(thing: object, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  const before = ends.get(thing) ?? Promise.resolve()
  const mine = before.then(() => {
    signal.throwIfAborted()
    return work()
  })
  ends.set(
    thing,
    mine.then(
      () => undefined,
      () => undefined,
    ),
  )
  return mine
}
