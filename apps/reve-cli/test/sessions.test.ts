import { appendFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { createSession, labelDraft, openSession, readSession } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import { agentFiles, folderWith, reve } from './run-cli.ts'

/** An agent with one session: root, a branch on lane `side`, a label. */
async function agent(): Promise<{ readonly folder: string; readonly file: string }> {
  const folder = await folderWith(agentFiles('- text: One.\n'))
  await mkdir(join(folder, '.reve', 'sessions'), { recursive: true })
  const file = join(folder, '.reve', 'sessions', 'main-20260105T100000000Z-0a1b2c3d.jsonl')
  await using log = await createSession(file, {
    cwd: 'workspace',
    id: 's_one',
    now: () => Date.parse('2026-01-05T10:00:00.000Z'),
  })
  const say = (id: string, role: string, text: string, lane = 'main') =>
    ({
      kind: 'entry',
      lane,
      id,
      type: 'message',
      payload: { message: { role, content: [{ type: 'text', text }] } },
    }) as const
  await log.append([
    say('e_1', 'user', 'make\u001b]0;owned\u0007 the tests\npass'),
    say('e_2', 'assistant', 'One.'),
    { ...say('e_3', 'user', 'aside', 'side'), parentId: 'e_1' },
    labelDraft('e_1', 'start'),
  ])
  return { folder, file }
}

const idsOf = async (file: string): Promise<readonly string[]> => {
  const view = await readSession(file)
  return view.path(view.leaf('main')).map(({ id }) => id)
}

describe('reve sessions list', () => {
  test('shows file, time, size and what a human knows a session by, the last used first', async () => {
    const { folder, file } = await agent()
    const later = join(folder, '.reve', 'sessions', 'b.jsonl')
    await (await createSession(later, { cwd: 'w', now: () => Date.parse('2026-01-06T00:00:00.000Z') })).close()
    await appendFile(
      later,
      `${JSON.stringify({ kind: 'record', id: 'r', seq: 1, ts: '2026-01-06T00:00:00.000Z', lane: 'main', type: 'fact_set', key: 'name', value: 'Big\u001b[31m one' })}\n`,
    )
    const broken = join(folder, '.reve', 'sessions', 'c.jsonl')
    await writeFile(broken, 'dear diary\n'.repeat(200))
    const { code, stdout, stderr } = await reve(['sessions'], folder)
    expect([code, stderr]).toEqual([0, ''])
    const size = (bytes: number) => `${bytes} B`.padStart(9)
    const bytes = async (path: string) => (await readFile(path)).length
    expect(stdout.split('\n')).toEqual([
      expect.stringMatching(/^c\.jsonl +\d{4}-\d\d-\d\d \d\d:\d\dZ {4}2\.1 KiB {2}\(not a session\)$/),
      `${'b.jsonl'.padEnd(basename(file).length)}  2026-01-06 00:00Z  ${size(await bytes(later))}  Big one`,
      `${basename(file)}  2026-01-05 10:00Z  ${size(await bytes(file))}  "make the tests pass"`,
      '',
    ])
    const json: unknown = JSON.parse((await reve(['sessions', 'list', '--json'], folder)).stdout)
    expect(json).toMatchObject([
      { kind: 'broken', file: broken, problem: { code: 'not_a_session' } },
      { kind: 'session', file: later, name: 'Big\u001b[31m one' },
      { kind: 'session', file, id: 's_one', title: expect.stringContaining('the tests') },
    ])
  })

  test('says that there are none', async () => {
    const folder = await folderWith(agentFiles('- text: One.\n'))
    expect(await reve(['sessions'], folder)).toMatchObject({
      code: 0,
      stdout: '',
      stderr: expect.stringContaining('no sessions yet'),
    })
    expect(await reve(['sessions', 'list', '--json'], folder)).toMatchObject({ code: 0, stdout: '[]\n' })
  })
})

describe('a session is meant by', () => {
  test('a path, its file name, or its id; what is in the current folder comes first', async () => {
    const { folder, file } = await agent()
    for (const word of [file, `.reve/sessions/${basename(file)}`, basename(file), 's_one'])
      expect((await reve(['sessions', 'verify', word], folder)).stdout).toBe(`${file}: good, 3 entries, 1 record\n`)
    await writeFile(join(folder, basename(file)), 'another file\n')
    expect(await reve(['sessions', 'verify', basename(file)], folder)).toMatchObject({ code: 6 })
  })

  test('nothing else: the refusal names the place', async () => {
    const { folder } = await agent()
    expect(await reve(['sessions', 'verify', 'no.jsonl'], folder)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining(`${join(folder, 'no.jsonl')}: `),
    })
  })

  test('a path needs no agent around it', async () => {
    const { folder, file } = await agent()
    const elsewhere = await folderWith({})
    expect(await reve(['sessions', 'verify', file], elsewhere)).toMatchObject({ code: 0 })
    expect(await reve(['sessions', 'fork', file, 'mine.jsonl'], elsewhere)).toMatchObject({ code: 0 })
    expect(await reve(['sessions', 'verify', 'mine.jsonl'], elsewhere)).toMatchObject({ code: 0 })
    expect(await readdir(folder)).not.toContain('mine.jsonl')
  })
})

describe('reve sessions fork', () => {
  test('makes a session of its own, at the leaf, at an entry, or of another lane', async () => {
    const { folder, file } = await agent()
    const before = await readFile(file)
    const forked = (name: string) => join(folder, name)
    expect(await reve(['sessions', 'fork', 's_one', 'a.jsonl'], folder)).toMatchObject({
      code: 0,
      stdout: `${forked('a.jsonl')}: 2 entries of s_one up to e_2\n`,
    })
    expect(await idsOf(forked('a.jsonl'))).toEqual(['e_1', 'e_2'])
    await reve(['sessions', 'fork', basename(file), 'b.jsonl', '--at', 'e_1'], folder)
    expect(await idsOf(forked('b.jsonl'))).toEqual(['e_1'])
    const { stdout } = await reve(['sessions', 'fork', file, 'c.jsonl', '--lane', 'side', '--json'], folder)
    expect(JSON.parse(stdout)).toMatchObject({
      target: forked('c.jsonl'),
      entries: 2,
      labels: 1,
      forkedFrom: { id: 's_one', entryId: 'e_3' },
    })
    expect(await readFile(file)).toEqual(before)
  })

  test('never overwrites, and refuses an entry that is not there', async () => {
    const { folder, file } = await agent()
    await writeFile(join(folder, 'taken.jsonl'), 'mine')
    expect(await reve(['sessions', 'fork', file, 'taken.jsonl'], folder)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('not overwritten'),
    })
    expect(await readFile(join(folder, 'taken.jsonl'), 'utf8')).toBe('mine')
    expect(await reve(['sessions', 'fork', file, 'x.jsonl', '--at', 'e_9'], folder)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is no entry "e_9"'),
    })
    await writeFile(file, `${await readFile(file, 'utf8')}not json\n{}\n`)
    expect(await reve(['sessions', 'fork', file, 'x.jsonl'], folder)).toMatchObject({
      code: 6,
      stderr: expect.stringContaining(`${file}:6`),
    })
    expect(await readdir(folder)).not.toContain('x.jsonl')
  })
})

describe('reve sessions name', () => {
  test('names a session, which the list then shows', async () => {
    const { folder, file } = await agent()
    expect(await reve(['sessions', 'name', 's_one', 'the', 'good one'], folder)).toMatchObject({
      code: 0,
      stdout: `${file}: the good one\n`,
    })
    expect((await reve(['sessions'], folder)).stdout).toMatch(/ {2}the good one\n$/)
    const { stdout } = await reve(['sessions', 'name', file, ' better ', '--json'], folder)
    expect(JSON.parse(stdout)).toEqual({ file, name: 'better' })
  })

  test('is refused while another process works in it, naming that', async () => {
    const { folder, file } = await agent()
    await using _log = await openSession(file)
    expect(await reve(['sessions', 'name', file, 'x'], folder)).toMatchObject({
      code: 5,
      stderr: expect.stringContaining(`process ${process.pid}`),
    })
    // Reading it, and forking it, are not.
    expect(await reve(['sessions', 'verify', file], folder)).toMatchObject({ code: 0 })
    expect(await reve(['sessions', 'fork', file, 'beside.jsonl'], folder)).toMatchObject({ code: 0 })
  })

  test('is one line of text', async () => {
    const { folder, file } = await agent()
    for (const name of ['', 'two\nlines', 'x'.repeat(201)]) {
      expect(await reve(['sessions', 'name', file, name], folder)).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringContaining('the name: it '),
      })
    }
  })
})

describe('reve sessions label', () => {
  test('marks an entry, which is then meant by its label', async () => {
    const { folder, file } = await agent()
    expect(await reve(['sessions', 'label', 's_one', 'e_2', 'the', 'good one'], folder)).toMatchObject({
      code: 0,
      stdout: 'e_2: the good one\n',
    })
    expect((await reve(['sessions', 'show'], folder)).stdout).toContain('e_2 · [the good one]')
    expect((await reve(['sessions', 'fork', file, 'f.jsonl', '--at', 'start'], folder)).code).toBe(0)
    expect(await idsOf(join(folder, 'f.jsonl'))).toEqual(['e_1'])
    const { stdout } = await reve(['sessions', 'label', file, 'the good one', '--remove', '--json'], folder)
    expect(JSON.parse(stdout)).toEqual({ file, entryId: 'e_2', label: null })
    expect((await reve(['sessions', 'show'], folder)).stdout).not.toContain('the good one')
  })

  test('refuses an entry that is not there, two with that label, and what is no label', async () => {
    const { folder, file } = await agent()
    expect(await reve(['sessions', 'label', file, 'e_9', 'x'], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no entry "e_9"'),
    })
    await reve(['sessions', 'label', file, 'e_2', 'start'], folder)
    expect(await reve(['sessions', 'label', file, 'start', 'x'], folder)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('several entries have the label "start": e_1, e_2'),
    })
    expect((await reve(['sessions', 'label', file, 'e_1', 'two\nlines'], folder)).code).toBe(2)
    await using _log = await openSession(file)
    expect((await reve(['sessions', 'label', file, 'e_1', 'x'], folder)).code).toBe(5)
  })
})

test('verify and salvage tell a human what there is, and a program the same as JSON', async () => {
  const { folder, file } = await agent()
  await appendFile(file, '{"kind":"rec')
  expect((await reve(['sessions', 'verify'], folder)).stdout).toMatch(
    /: good, 3 entries, 1 record; the last line is incomplete/,
  )
  await appendFile(file, '\nnot json\n')
  expect(await reve(['sessions', 'verify'], folder)).toMatchObject({
    code: 6,
    stdout: expect.stringMatching(/: not good, 3 entries, 1 record\n {2}line 6: the line is not valid JSON\n/),
  })
  expect(await reve(['sessions', 'salvage', 's_one', 'saved.jsonl'], folder)).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/saved\.jsonl: 5 lines kept, 22 B left behind\n {2}line 6: /),
  })
  const { stdout } = await reve(['sessions', 'salvage', 's_one', 'again.jsonl', '--json'], folder)
  expect(JSON.parse(stdout)).toMatchObject({ target: join(folder, 'again.jsonl'), lines: 5, problem: { line: 6 } })
})

test('a fork or a salvage without a target is the newest session, the one that is continued', async () => {
  const root = await folderWith(agentFiles('- text: One.\n- text: Two.\n'))
  expect((await reve(['run', 'Hello'], root)).stdout).toBe('One.\n')
  const [first] = await listed(root)
  for (const action of ['fork', 'salvage']) {
    const { code, stdout } = await reve(['sessions', action, first ?? '', '--json'], root)
    expect(code).toBe(0)
    const { target } = JSON.parse(stdout) as { readonly target: string }
    expect(dirname(target)).toBe(join(root, '.reve', 'sessions'))
    expect((await reve(['run', '--continue', 'Go on'], root)).stdout).toBe('Two.\n')
    const [newest] = await listed(root)
    expect(newest).toBe(basename(target))
  }
})

async function listed(root: string): Promise<readonly string[]> {
  const { stdout } = await reve(['sessions', 'list', '--json'], root)
  return (JSON.parse(stdout) as readonly { readonly file: string }[]).map(({ file }) => basename(file))
}
