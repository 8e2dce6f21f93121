import { realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { ioError } from './errors.ts'
import type { LineProblem } from './format.ts'
import { createWhole } from './new-file.ts'
import { scan } from './scan.ts'
import { reading, writeAll } from './session.ts'

/** What {@link salvageSession} kept, and what stays behind in the source. */
export type SalvageReport = {
  readonly target: string
  /** Lines in the new file, the header counted. */
  readonly lines: number
  /** Bytes of the source that were kept. */
  readonly bytes: number
  /** Bytes of the source that were not. */
  readonly droppedBytes: number
  /** Why it ends where it ends; absent when only a torn tail was left out, or nothing. */
  readonly problem?: LineProblem
}

const CHUNK = 1024 * 1024

/**
 * Copies the good beginning of a session, up to the first line that {@link openSession} would refuse, to a new file
 * (0600). The source is not changed; the target is there whole or not at all, and never replaces anything.
 *
 * @throws SessionLogError `exists`, `not_found`, `io`, and for a source without a header what `openSession` says of it.
 */
export async function salvageSession(file: string, target: string): Promise<SalvageReport> {
  try {
    const real = await realpath(file)
    return await reading(real, async (handle) => {
      const found = await scan(handle, real, () => 'stop')
      const place = join(await realpath(dirname(target)), basename(target))
      await createWhole(place, async (copy) => {
        const chunk = Buffer.allocUnsafe(CHUNK)
        let last = 0x0a
        for (let position = 0; position < found.goodEnd;) {
          const { bytesRead } = await handle.read(chunk, 0, Math.min(CHUNK, found.goodEnd - position), position)
          if (bytesRead === 0) throw new Error('the file shrank while it was being copied')
          await writeAll(copy, chunk.subarray(0, bytesRead))
          last = chunk[bytesRead - 1] ?? last
          position += bytesRead
        }
        if (last !== 0x0a) await writeAll(copy, Uint8Array.of(0x0a))
      })
      return {
        target: place,
        lines: found.goodLines,
        bytes: found.goodEnd,
        droppedBytes: found.size - found.goodEnd,
        ...(found.problem === undefined ? {} : { problem: found.problem }),
      }
    })
  } catch (error) {
    throw ioError(file, 'cannot salvage the session', error)
  }
}
