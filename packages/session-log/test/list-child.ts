/**
 * A process of its own for the list tests: `node --conditions=@reve/source list-child.ts <folder> [id]`. Lists the sessions, or finds
 * one, and says on standard output what came of it and how many bytes it read for that.
 */
import { existsSync, readFileSync } from 'node:fs'
import { findSession, listSessions } from '../src/index.ts'

const [folder = '', id] = process.argv.slice(2)

/** Bytes that this process has read so far, where the system counts them. */
const bytesRead = (): number =>
  existsSync('/proc/self/io') ? Number(/^rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]) : 0

const before = bytesRead()
const found = id === undefined ? await listSessions(folder) : await findSession(folder, id)
process.stdout.write(JSON.stringify({ found, bytesRead: bytesRead() - before }))
