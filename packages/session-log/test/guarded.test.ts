import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, statSync, writeFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { openAppendFile, type OpenFile } from '../src/append-file.ts'
import { createSession, forkSession, openSession, readSession } from '../src/index.ts'
import { entry, fact, failure, fileOf, folder, header, note } from './helpers.ts'

/** Puts a test in front of a method of every handle of `node:fs/promises`, until the test is over. */
async function standBefore<Args extends readonly unknown[], Result>(
  method: 'sync' | 'read',
  make: (
    real: (this: FileHandle, ...args: Args) => Promise<Result>,
  ) => (this: FileHandle, ...args: Args) => Promise<Result>,
): Promise<void> {
  await using handle = await open(folder(), 'r')
  const shared: object = Object.getPrototypeOf(handle)
  const real: (this: FileHandle, ...args: Args) => Promise<Result> = Reflect.get(shared, method)
  Object.assign(shared, { [method]: make(real) })
  onTestFinished(() => {
    Object.assign(shared, { [method]: real })
  })
}

describe('a new file and a loss of power', () => {
  /** What is synced, in order: which file, how much of it, and whether it had its name by then. */
  async function watchSyncs(place: string) {
    const syncs: { readonly inode: number; readonly bytes: number | 'folder'; readonly named: boolean }[] = []
    await standBefore<[], void>(
      'sync',
      (real) =>
        async function () {
          const found = await this.stat()
          const named = existsSync(place) && statSync(place).size > 0
          syncs.push({ inode: found.ino, bytes: found.isDirectory() ? 'folder' : found.size, named })
          await real.call(this)
        },
    )
    return syncs
  }

  test.each([
    ['a new session', async (file: string) => (await createSession(file, { cwd: 'w' })).close()],
    [
      'a new session in the place of an empty file',
      async (file: string) => {
        writeFileSync(file, '')
        await (await createSession(file, { cwd: 'w' })).close()
      },
    ],
    ['a fork', (file: string) => forkSession(fileOf(header, entry(1, null), entry(2, 'e_1')), file)],
  ])('%s: all of it is synced before it has its name, its folder after', async (_, make) => {
    const file = join(folder(), 'talk.jsonl')
    const syncs = await watchSyncs(file)
    await make(file)
    const { ino, size } = statSync(file)
    expect(syncs).toEqual([
      { inode: ino, bytes: size, named: false },
      { inode: statSync(dirname(file)).ino, bytes: 'folder', named: true },
    ])
  })
})

type Read = (
  buffer: Buffer,
  offset: number,
  length: number,
  position: number,
) => Promise<{ readonly bytesRead: number }>

describe('a writer that takes back a failed append under the eyes of a reader', () => {
  /** A log whose next append fails in its middle, and takes itself back when told to. */
  async function failingAppend() {
    const file = join(folder(), 'talk.jsonl')
    const state = { broken: false }
    let takeBack = (): void => undefined
    const told = new Promise<void>((resolve) => (takeBack = resolve))
    let torn = (): void => undefined
    const half = new Promise<void>((resolve) => (torn = resolve))
    const openFile: OpenFile = async (path) => {
      const real = await openAppendFile(path)
      return {
        ...real,
        write: (bytes) => real.write(state.broken ? bytes.subarray(0, 1500) : bytes),
        truncate: async (bytes) => {
          torn()
          await told
          await real.truncate(bytes)
        },
      }
    }
    const log = await createSession(file, { cwd: 'w', openFile })
    const [kept] = await log.append([note('kept')])
    const good = statSync(file).size
    state.broken = true
    const failed = failure(log.append([note('x'.repeat(3000))]))
    await half
    expect(statSync(file).size).toBe(good + 1500)
    const goOn = async () => {
      takeBack()
      expect((await failed).code).toBe('io')
      await log.close()
      await using again = await openSession(file)
      await again.append([fact('a', 1), fact('b', 2), fact('c', 3)])
    }
    return { file, kept, good, goOn }
  }

  test('is looked at a second time: no damage', async () => {
    const { file, kept, good, goOn } = await failingAppend()
    let reads = 0
    await standBefore<Parameters<Read>, Awaited<ReturnType<Read>>>(
      'read',
      (real) =>
        // The system may give less than was asked for: here up to the middle of what failed, and then time passes.
        async function (buffer, offset, length, position) {
          const first = reads++ === 0
          const result = await real.call(this, buffer, offset, first ? good + 40 : length, position)
          if (first) await goOn()
          return result
        },
    )
    const view = await readSession(file)
    expect(view.lines.map(({ id }) => id).slice(0, 1)).toEqual([kept?.id])
    expect(view.records().map((record) => record['key'])).toEqual(['a', 'b', 'c'])
    expect(view.torn).toBe(false)
  })

  test('what is still damaged at the second look is damage', async () => {
    const file = fileOf(header, '{"kind":"e\n', entry(2, null))
    expect(await failure(readSession(file))).toMatchObject({ code: 'corrupt', line: 2 })
  })
})

test.skipIf(process.platform === 'win32')('a pipe in the place of a session is refused at once', () => {
  const pipe = join(folder(), 'talk.jsonl')
  execFileSync('mkfifo', [pipe])
  const script = `
    const { openSession, readSession } = await import(process.argv[1])
    for (const use of [readSession, openSession]) {
      const code = await use(process.argv[2]).then(() => 'opened', (error) => error.code)
      process.stdout.write(code + '\\n')
    }`
  const index = new URL('../src/index.ts', import.meta.url).href
  const args = ['--conditions=@reve/source', '--input-type=module', '--eval', script, index, pipe]
  // In a process of its own: one that hangs in the opening of a pipe does not end by itself.
  const { stdout, signal } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    timeout: 60_000,
    killSignal: 'SIGKILL',
  })
  expect({ stdout, signal }).toEqual({ stdout: 'not_a_session\nnot_a_session\n', signal: null })
  expect(existsSync(`${pipe}.lock`)).toBe(false)
})
