import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { readSession, type EntryLine } from '@reve/session-log'
import { probeBackends } from '@reve/sandbox-microvm'
import { describe, expect, test } from 'vitest'
import { surroundings } from '../src/surroundings.ts'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const [backend] = (await probeBackends(surroundings(process.env))).filter(({ ok }) => ok)
if (backend === undefined) process.stderr.write('no microVM boots here: rewinding files is not tested\n')

/** The conversation of the newest session. */
async function entriesOf(folder: string): Promise<readonly EntryLine[]> {
  const sessions = join(folder, '.reve', 'sessions')
  const names = (await readdir(sessions)).filter((file) => file.endsWith('.jsonl')).toSorted()
  const view = await readSession(join(sessions, names.at(-1) ?? ''))
  return view.path(view.leaf('main'))
}

describe.skipIf(backend === undefined)('reve rewind', () => {
  test('brings files and conversation back, by an id or a label, and forth again', async () => {
    const step = (text: string): string => `- calls: [{ name: bash, arguments: { command: '${text}' } }]\n`
    const folder = await folderWith({
      ...agentFiles(`${step('echo one > a')}${step('echo two > a; echo new > b')}- text: Done.\n`),
      'workspace/mine': 'before\n',
    })
    const at = (path: string): string => join(folder, 'workspace', path)
    expect(await reve(['run', 'go'], folder)).toMatchObject({ code: 0, stdout: 'Done.\n' })
    const entries = await entriesOf(folder)
    const [prompt, , first, , second, last] = entries.map(({ id }) => id)
    const [name = ''] = (await readdir(join(folder, '.reve', 'sessions'))).filter((file) => file.endsWith('.jsonl'))
    await reve(['sessions', 'label', name, first ?? '', 'first step'], folder)

    expect(await reve(['rewind', 'first step'], folder)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^back at e_\S+: .*"reve run --continue"/),
    })
    expect([readFileSync(at('a'), 'utf8'), existsSync(at('b'))]).toEqual(['one\n', false])
    expect((await entriesOf(folder)).map(({ id }) => id)).toEqual(entries.slice(0, 3).map(({ id }) => id))

    const { stdout } = await reve(['rewind', second ?? '', '--json'], folder)
    expect(JSON.parse(stdout)).toMatchObject({ entryId: second, files: { inTheWay: [] } })
    expect([readFileSync(at('a'), 'utf8'), readFileSync(at('b'), 'utf8')]).toEqual(['two\n', 'new\n'])

    // Before any effect.
    await reve(['rewind', prompt ?? '', '--files'], folder)
    expect(readdirSync(at(''))).toEqual(['mine'])
    expect(await reve(['run', '--continue', 'else'], folder)).toMatchObject({ code: 0, stdout: 'Done.\n' })
    // The branch that was left is all there.
    expect(await reve(['rewind', last ?? '', '--no-files'], folder)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('files as they are'),
    })
    expect((await entriesOf(folder)).map(({ id }) => id)).toEqual(entries.map(({ id }) => id))
  })
})

test('of the conversation alone needs no VM; what is not there is refused before anything changes', async () => {
  const folder = await folderWith({ ...agentFiles('- text: One.\n- text: Two.\n'), 'workspace/mine': '' })
  await reve(['run', 'hello'], folder)
  await reve(['run', '--continue', 'more'], folder)
  const [prompt] = await entriesOf(folder)
  writeFileSync(join(folder, 'workspace', 'kept'), 'x')
  expect(await reve(['rewind', 'e_none'], folder)).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('e_none'),
  })
  expect(await reve(['rewind', prompt?.id ?? '', '--lane', 'side'], folder)).toMatchObject({ code: 0 })
  expect(await entriesOf(folder)).toHaveLength(4)
  expect(await reve(['rewind', prompt?.id ?? ''], folder)).toMatchObject({ code: 0 })
  expect(await entriesOf(folder)).toEqual([prompt])
  expect(readdirSync(join(folder, 'workspace')).toSorted()).toEqual(['kept', 'mine'])
  expect(await reve(['rewind', 'x'], await folderWith({}))).toMatchObject({ code: 3 })
  expect(await reve(['rewind', 'x'], await folderWith(agentFiles('- text: x\n')))).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no session'),
  })
})
