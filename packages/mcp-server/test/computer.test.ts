import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openComputer } from '../src/index.ts'
import {
  connect,
  git,
  gone,
  lingering,
  processIn,
  serve,
  temporary,
  treeIn,
  type Caller,
  type Served,
} from './support.ts'

let served: Served
let caller: Caller
beforeAll(async () => {
  served = await serve()
  caller = await connect(served.url, served.token)
})
afterAll(async () => {
  await caller[Symbol.asyncDispose]()
  await served[Symbol.asyncDispose]()
})

const ok = async (family: string, action: string, args: Readonly<Record<string, unknown>> = {}): Promise<string> => {
  const { text, isError } = await caller.call(family, action, args)
  expect(isError ? `${family}.${action}: ${text}` : '').toBe('')
  return text
}
const refused = async (
  family: string,
  action: string,
  args: Readonly<Record<string, unknown>> = {},
): Promise<string> => {
  const { text, isError } = await caller.call(family, action, args)
  expect(isError).toBe(true)
  return text
}

async function repository(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporary()
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(folder, path, '..'), { recursive: true })
    await writeFile(join(folder, path), text)
  }
  git(folder, 'init', '--quiet')
  git(folder, 'add', '.')
  git(folder, 'commit', '--quiet', '-m', 'first')
  return folder
}

test('a repository is imported, read, edited, branched, merged, tested, snapshotted and exported', async () => {
  const folder = await repository({ 'src/a.txt': 'one\ntwo\nthree\n', 'test.sh': 'grep -q TWO src/a.txt\n' })
  const main = treeIn(await ok('git', 'import', { src: folder, name: 'work' }))
  expect(await ok('ref', 'get', { name: 'work' })).toBe(`work ${main} rev 1`)
  expect(await ok('fs', 'list', { tree: 'work' })).toBe('src/\ntest.sh 22')
  expect(await ok('fs', 'read', { tree: 'work', path: 'src/a.txt', offset: 2, limit: 1 })).toMatch(
    /^ +2\ttwo\n… 1 more lines; go on with offset=3$/,
  )
  expect(await ok('fs', 'glob', { tree: 'work', pattern: '**/*.txt' })).toBe('src/a.txt')
  expect(await ok('fs', 'grep', { tree: 'work', pattern: 'T[WH]', ignore_case: true })).toContain('src/a.txt:2:two')

  const test1 = await ok('exec', 'run', { tree: 'work', argv: ['sh', 'test.sh'] })
  expect(test1).toMatch(/^exit 1 \(ran in/)
  await ok('snapshot', 'create', { name: 'before' })
  await ok('branch', 'create', { name: 'fix', from_ref: 'work' })
  const fixed = treeIn(await ok('fs', 'edit', { tree: 'fix', path: 'src/a.txt', old: 'two', new: 'TWO' }))
  await ok('ref', 'move', { name: 'fix', expected_tree: main, new_tree: fixed, note: 'louder' })
  expect(await ok('fs', 'diff', { a: 'work', b: 'fix' })).toMatch(/changed src\/a\.txt \+1 -1[\s\S]*-two\n\+TWO/)

  const ran = await ok('exec', 'run', { tree: 'fix', argv: ['sh', 'test.sh'] })
  expect(ran).toMatch(/^exit 0 \(ran in/)
  expect(await ok('exec', 'run', { tree: 'fix', argv: ['sh', 'test.sh'] })).toMatch(/^exit 0 \(cached since/)
  expect(await ok('exec', 'run', { tree: 'fix', argv: ['sh', 'test.sh'], fresh: true })).toMatch(/^exit 0 \(ran in/)

  expect(await ok('branch', 'merge', { into: 'work', from_ref: 'fix' })).toContain(`work ${fixed} rev 2`)
  const exported = await ok('git', 'export', {
    name: 'work',
    tree: 'work',
    branch: 'louder',
    message: 'Louder',
    author: 'Ada <ada@example.com>',
  })
  expect(exported).toMatch(/^commit [0-9a-f]{40} on louder/)
  await ok('git', 'push', { name: 'work', branch: 'louder' })
  expect(git(folder, 'log', '--format=%an %cn %s', 'louder')).toBe('Ada Computer Louder\nT T first\n')
  expect(await ok('git', 'log', { name: 'work', n: 1 })).toContain('Ada <ada@example.com>')

  expect(await ok('snapshot', 'rollback', { name: 'before' })).toContain(`work ${main} rev 3`)
  expect(await ok('ref', 'history', { name: 'work' })).toMatch(/rev 3[\s\S]*rev 2[\s\S]*rev 1/)
  expect(await ok('snapshot', 'list')).toContain('before')
  expect(await refused('snapshot', 'create', { name: 'before' })).toContain('before')
})

test('a conflict moves nothing and lists each path with its three sides', async () => {
  const base = treeIn(
    await ok('fs', 'write', { tree: treeIn(await ok('fs', 'empty')), path: 'f', content: 'a\nb\nc\n' }),
  )
  await ok('ref', 'create', { name: 'ours', tree: base })
  await ok('branch', 'create', { name: 'theirs', from_ref: 'ours' })
  const ours = treeIn(await ok('fs', 'edit', { tree: 'ours', path: 'f', old: 'b', new: 'B1' }))
  const theirs = treeIn(await ok('fs', 'edit', { tree: 'theirs', path: 'f', old: 'b', new: 'B2' }))
  await ok('ref', 'move', { name: 'ours', expected_tree: base, new_tree: ours })
  await ok('ref', 'move', { name: 'theirs', expected_tree: base, new_tree: theirs })
  const text = await ok('branch', 'merge', { into: 'ours', from_ref: 'theirs' })
  expect(text).toMatch(
    /^conflict: ours was not moved; 1 paths[\s\S]*f[\s\S]*base file [0-9a-f]{64}[\s\S]*ours file[\s\S]*theirs file/,
  )
  expect(await ok('ref', 'get', { name: 'ours' })).toBe(`ours ${ours} rev 2`)
  expect(await ok('branch', 'discard', { name: 'theirs' })).toContain('discarded theirs')
})

describe('refs', () => {
  test('a move that expects another tree is refused, naming the tree it found', async () => {
    const empty = treeIn(await ok('fs', 'empty'))
    const other = treeIn(await ok('fs', 'write', { tree: empty, path: 'x', content: 'y' }))
    await ok('ref', 'create', { name: 'contended', tree: empty })
    expect(await refused('ref', 'move', { name: 'contended', expected_tree: other, new_tree: other })).toContain(empty)
  })

  test('of many that move at once one wins each round, and the history has every move', async () => {
    let at = treeIn(await ok('fs', 'empty'))
    await ok('ref', 'create', { name: 'race', tree: at })
    for (let round = 1; round <= 3; round++) {
      const trees = await Promise.all(
        Array.from({ length: 12 }, async (_, index) =>
          treeIn(await ok('fs', 'write', { tree: at, path: `${round}-${index}`, content: 'x' })),
        ),
      )
      const answers = await Promise.all(
        trees.map((tree) => caller.call('ref', 'move', { name: 'race', expected_tree: at, new_tree: tree })),
      )
      const won = answers.filter(({ isError }) => !isError)
      expect(won).toHaveLength(1)
      at = treeIn(won[0]?.text ?? '')
      for (const { text } of answers.filter(({ isError }) => isError)) expect(text).toContain(at)
    }
    expect((await ok('ref', 'history', { name: 'race' })).split('\n')).toHaveLength(4)
  })
})

describe('edits', () => {
  test('one exact match or a refusal that says how many and where', async () => {
    const tree = treeIn(
      await ok('fs', 'write', { tree: treeIn(await ok('fs', 'empty')), path: 'f', content: 'x\ny\nx\n' }),
    )
    expect(await refused('fs', 'edit', { tree, path: 'f', old: 'x', new: 'z' })).toMatch(/2.*lines? 1.*3/s)
    expect(await refused('fs', 'edit', { tree, path: 'f', old: 'nope', new: 'z' })).toMatch(/not|no /)
    const all = treeIn(await ok('fs', 'edit', { tree, path: 'f', old: 'x', new: '$&', replace_all: true }))
    expect(await ok('fs', 'read', { tree: all, path: 'f' })).toContain('1\t$&')
    expect(await ok('fs', 'read', { tree, path: 'f' })).toContain('1\tx')
  })

  test('paths that lead elsewhere are refused in every verb', async () => {
    const tree = treeIn(await ok('fs', 'empty'))
    for (const path of ['../x', '/etc/passwd', 'a/../../b', '.git/config', '.GIT/hooks/x', 'a//b/..']) {
      expect(await refused('fs', 'write', { tree, path, content: 'x' })).not.toContain('internal error')
      expect(await refused('fs', 'read', { tree, path })).not.toContain('internal error')
    }
  })

  test('bytes go in as base64 and are told from text', async () => {
    const tree = treeIn(
      await ok('fs', 'write', {
        tree: treeIn(await ok('fs', 'empty')),
        path: 'b',
        content: 'AAEC/w==',
        encoding: 'base64',
      }),
    )
    expect(await ok('fs', 'read', { tree, path: 'b' })).toMatch(/^binary, 4 bytes/)
  })
})

describe('events', () => {
  test('every call is one, also a refused one, and holds no secret', async () => {
    const before = served.computer.events.newest(1)[0]?.id ?? 0
    const tree = treeIn(await ok('fs', 'empty'))
    await ok('fs', 'write', { tree, path: 'secret.txt', content: 'sentinel-body-1' })
    await ok('exec', 'run', { tree, argv: ['true'], env: { TOKEN: 'sentinel-env-2' } })
    await refused('git', 'import', { src: 'https://user:sentinel-pass-3@127.0.0.1:1/x.git', name: 'nothing' })
    await refused('fs', 'raed', { tree, content: 'sentinel-wrong-4' })
    const events = served.computer.events.newest(5).toReversed()
    expect(events.map(({ tool, ok: succeeded }) => [tool, succeeded])).toEqual([
      ['fs.empty', true],
      ['fs.write', true],
      ['exec.run', true],
      ['git.import', false],
      ['fs.raed', false],
    ])
    expect(events[0]?.id).toBe(before + 1)
    expect(
      events.every(
        ({ seat, durationMs, bytesIn, bytesOut }) =>
          seat === 'tester' && durationMs >= 0 && bytesIn > 0 && bytesOut > 0,
      ),
    ).toBe(true)
    expect(JSON.stringify(events)).not.toMatch(/sentinel-(env|pass|wrong|body)/)
    expect(await ok('computer', 'metrics')).toMatch(/\d+ calls in the last 3600 s/)
  })

  test('neither the token nor a value that only passed through is anywhere on disk but as a hash', async () => {
    const files = await readdir(served.computer.root, { recursive: true, withFileTypes: true })
    for (const file of files.filter((entry) => entry.isFile())) {
      const bytes = await readFile(join(file.parentPath, file.name))
      expect(bytes.includes(served.token) ? file.name : '').toBe('')
      expect(bytes.includes('sentinel-env-2') ? file.name : '').toBe('')
      expect(bytes.includes('sentinel-pass-3') ? file.name : '').toBe('')
    }
  })
})

test('a seat keeps its texts, and never tells its token', async () => {
  await ok('seat', 'update', { identity: 'a tester', loop_state: 'step 3' })
  const text = await ok('seat', 'whoami')
  expect(text).toContain('identity: a tester')
  expect(text).toContain('loop_state: step 3')
  expect(text).not.toContain(served.token)
})

test('a call that the client gives up kills its action', async () => {
  const tree = treeIn(await ok('fs', 'empty'))
  const controller = new AbortController()
  const file = join(await temporary(), 'pid')
  const running = caller
    .call('exec', 'run', { tree, argv: lingering(file) }, { signal: controller.signal })
    .catch(() => 'given up')
  const pid = await processIn(file)
  controller.abort()
  expect(await running).toBe('given up')
  expect(await gone(pid)).toBe(true)
})

test('progress reaches a client that asks for it', async () => {
  const tree = treeIn(await ok('fs', 'empty'))
  const seen: unknown[] = []
  await caller.call(
    'exec',
    'run',
    { tree, argv: ['true'], fresh: true },
    { onprogress: (progress) => seen.push(progress) },
  )
  expect(seen.length).toBeGreaterThan(0)
})

test('a computer has one owner, who is named to the next', async () => {
  await expect(
    openComputer({ root: served.computer.root, identity: { name: 'x', email: 'x@y' }, hostFingerprint: 'test' }),
  ).rejects.toMatchObject({ code: 'locked', message: expect.stringContaining(`${process.pid}`) })
})

test('a folder without a computer is said to have none', async () => {
  await expect(
    openComputer({ root: await temporary(), identity: { name: 'x', email: 'x@y' }, hostFingerprint: 'test' }),
  ).rejects.toMatchObject({
    code: 'not_a_computer',
    message: expect.stringContaining('kc init'),
  })
})
