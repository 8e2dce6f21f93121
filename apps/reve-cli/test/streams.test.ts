import { spawn } from 'node:child_process'
import { openSync } from 'node:fs'
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { once } from 'node:events'
import { text as readAll } from 'node:stream/consumers'
import { join } from 'node:path'
import { probeBackends } from '@reve/sandbox-microvm'
import { expect, test } from 'vitest'
import { surroundings } from '../src/surroundings.ts'
import { agentFiles, folderWith, main, reve } from './run-cli.ts'

const [backend] = (await probeBackends(surroundings(process.env))).filter(({ ok }) => ok)
if (backend === undefined) process.stderr.write('no microVM boots here: the output of one is not tested\n')

const start = (args: readonly string[], cwd: string, stdout: 'pipe' | number = 'pipe') =>
  spawn(process.execPath, ['--conditions=@reve/source', main, ...args], { cwd, stdio: ['pipe', stdout, 'pipe'] })

/** Runs it until the first byte of its output, then closes the reading end as `head -1` does. */
async function readOnce(args: readonly string[], cwd: string) {
  const child = start(args, cwd)
  child.stdin?.end()
  if (child.stdout === null || child.stderr === null) throw new Error('there are no pipes')
  const stderr = readAll(child.stderr)
  await once(child.stdout, 'data')
  child.stdout.destroy()
  const [code] = await once(child, 'close')
  return { code, stderr: await stderr }
}

test('a reader of --json that leaves stops the run in order: closed on disk, no stack trace, 130', async () => {
  const folder = await folderWith(agentFiles('- { text: Slow., delayMs: 2000 }\n'))
  const { code, stderr } = await readOnce(['run', '--json', 'hello'], folder)
  expect(stderr).not.toContain('EPIPE')
  expect(code).toBe(130)
  const [name = ''] = (await readdir(join(folder, '.reve', 'sessions'))).filter((file) => file.endsWith('.jsonl'))
  expect(await readFile(join(folder, '.reve', 'sessions', name), 'utf8')).toContain('operation_finished')
})

test('a full disk under standard output is said in a sentence and is no success', async () => {
  const folder = await folderWith(agentFiles('- text: x\n'))
  for (const args of [['info'], ['--help']]) {
    const child = start(args, folder, openSync('/dev/full', 'w'))
    if (child.stderr === null) throw new Error('there is no pipe')
    const stderr = readAll(child.stderr)
    expect(await once(child, 'close')).toEqual([1, null])
    expect(await stderr).toMatch(/^reve: standard output cannot be written: ENOSPC[^\n]*\n$/)
  }
})

test('Ctrl-C while a prompt is read from standard input ends reve at once', async () => {
  const child = start(['run'], await folderWith(agentFiles('- text: x\n')))
  if (child.stderr === null) throw new Error('there is no pipe')
  const stderr = readAll(child.stderr)
  // Its handlers are there once it reads: then a large prompt does not fit into the pipe without being read.
  await new Promise((done) => child.stdin?.write('x'.repeat(1 << 20), done))
  child.kill('SIGINT')
  expect(await once(child, 'close')).toEqual([130, null])
  expect(await stderr).toBe('')
})

test('standard input comes after the words of a prompt that ends in a dash', async () => {
  const folder = await folderWith(agentFiles('- text: Seen.\n'))
  expect(await reve(['run', '--json', 'review this:', '-'], folder, { stdin: '  a diff\n' })).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('review this:\\n\\n  a diff'),
  })
  expect(await reve(['run', ''], folder)).toMatchObject({ code: 2, stderr: expect.stringContaining('no prompt') })
})

test('a folder that cannot be used is said in a sentence, and nothing hangs', async () => {
  const folder = await folderWith(agentFiles('- text: x\n'))
  await writeFile(join(folder, 'workspace'), 'a file')
  expect(await reve(['tool'], folder)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^reve: [^\n]*workspace cannot be used as the agent's working folder[^\n]*\n$/),
  })
  const gone = join(folder, 'gone')
  await mkdir(gone)
  const child = spawn(
    'sh',
    ['-c', `rmdir ../gone && exec ${process.execPath} --conditions=@reve/source ${main} info`],
    {
      cwd: gone,
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  )
  const stderr = readAll(child.stderr)
  expect(await once(child, 'close')).toEqual([2, null])
  expect(await stderr).toMatch(/^reve: the current folder cannot be used/)
  await rm(folder, { recursive: true })
})

test.skipIf(backend === undefined)('what reve exec prints waits for its reader, and ends with it', async () => {
  const folder = await folderWith(agentFiles('- text: x\n'))
  const { code, stderr } = await readOnce(['exec', 'yes'], folder)
  expect(stderr).not.toContain('EPIPE')
  expect(code).toBe(130)

  // 24 MiB through a reader that is not there until the command has long filled the pipe.
  const child = start(['exec', 'head -c 25165824 /dev/zero; echo end >&2; exit 3'], folder)
  if (child.stdout === null || child.stderr === null) throw new Error('there are no pipes')
  const errors = readAll(child.stderr)
  await once(child.stdout, 'readable')
  let bytes = 0
  for await (const chunk of child.stdout) bytes += (chunk as Buffer).length
  expect(bytes).toBe(25_165_824)
  expect(await errors).toContain('end')
  expect(child.exitCode ?? (await once(child, 'close'))[0]).toBe(3)
})
