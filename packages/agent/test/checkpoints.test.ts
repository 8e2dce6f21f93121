import { execFileSync } from 'node:child_process'
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { probeBackends } from '@reve/sandbox-microvm'
import { describe, expect, test } from 'vitest'
import { type Checkpoints, openCheckpoints, tryCheckpoints, wasRestoring } from '../src/checkpoints.ts'
import { openAgent } from '../src/index.ts'
import { killedLife } from './lives.ts'

const host = {
  cacheDir: join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'reve'),
  runtimeDir: join('/tmp', `reve-${process.getuid?.() ?? 0}`),
}
const [backend] = (await probeBackends(host)).filter(({ ok }) => ok)
if (backend === undefined) process.stderr.write('no microVM boots here: rewinding what tools did is not tested\n')

async function folderWith(files: Readonly<Record<string, string>>): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'checkpoints-'))
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return root
}

async function captured(checkpoints: Checkpoints): Promise<string> {
  const taken = await checkpoints.capture()
  if (taken.type !== 'captured') throw new Error(taken.reason)
  return taken.tree
}

/** Whether a file can be made one that nobody changes, root neither. */
const hasImmutable = await (async () => {
  const file = join(await mkdtemp(join(tmpdir(), 'immutable-')), 'f')
  writeFileSync(file, '')
  try {
    execFileSync('chattr', ['+i', file], { stdio: 'ignore' })
    execFileSync('chattr', ['-i', file], { stdio: 'ignore' })
    return true
  } catch (error) {
    process.stderr.write(
      `chattr +i does not work here: a restore that the disk refuses is not tested (${String(error)})\n`,
    )
    return false
  }
})()

describe('checkpoints of a folder', () => {
  test('bring the files back, with what they replaced kept', async () => {
    const root = await folderWith({ 'workspace/a': 'one', 'workspace/d/b': 'one' })
    const [store, workspace] = [join(root, 'checkpoints'), join(root, 'workspace')]
    let one = ''
    {
      await using checkpoints = await openCheckpoints(store, workspace)
      const taken = await checkpoints.capture()
      if (taken.type !== 'captured') throw new Error(taken.reason)
      one = taken.tree
      writeFileSync(join(workspace, 'a'), 'two')
      const { before, written, removed } = await checkpoints.restore(one)
      expect([readFileSync(join(workspace, 'a'), 'utf8'), written, removed]).toEqual(['one', 1, 0])
      await checkpoints.restore(before)
      expect(readFileSync(join(workspace, 'a'), 'utf8')).toBe('two')
      await expect(checkpoints.restore('0'.repeat(64))).rejects.toMatchObject({ code: 'no_checkpoint' })
      expect(await tryCheckpoints(store, workspace)).toMatchObject({
        reason: expect.stringContaining('open in process'),
      })
    }
  })

  test('a restore that a kill cut off is undone at the next opening, whenever it came', async () => {
    const names = Array.from({ length: 1500 }, (_, index) => `workspace/d${index % 40}/f${index}`)
    const root = await folderWith(Object.fromEntries(names.map((name) => [name, 'one'])))
    const [store, workspace] = [join(root, 'checkpoints'), join(root, 'workspace')]
    let one = ''
    let two = ''
    {
      await using checkpoints = await openCheckpoints(store, workspace)
      one = await captured(checkpoints)
      for (const name of names) writeFileSync(join(root, name), 'two')
      writeFileSync(join(workspace, 'new'), 'two')
      two = await captured(checkpoints)
    }
    let cuts = 0
    // When a restore writes depends on the machine: the kills come later and later until some fell into it.
    for (let round = 0; round < 24 && cuts < 2; round++) {
      await killedLife('./restoring-life.ts', [store, workspace, one], { lines: 1, moreMs: 15 * 1.3 ** (round % 18) })
      const isCut = await wasRestoring(store)
      if (isCut) cuts += 1
      await using checkpoints = await openCheckpoints(store, workspace)
      const now = await captured(checkpoints)
      expect(isCut ? [two] : [one, two]).toContain(now)
      expect(await wasRestoring(store)).toBe(false)
      if (now === one) await checkpoints.restore(two)
    }
    expect(cuts).toBeGreaterThan(0)
  }, 400_000)

  test.skipIf(!hasImmutable)('a restore that the disk refuses half-way is undone at once', async () => {
    const root = await folderWith({ 'workspace/a': 'one', 'workspace/m/stuck': 'one', 'workspace/z': 'one' })
    const workspace = join(root, 'workspace')
    await using checkpoints = await openCheckpoints(join(root, 'checkpoints'), workspace)
    const one = await captured(checkpoints)
    for (const name of ['a', 'm/stuck', 'z']) writeFileSync(join(workspace, name), 'two')
    const two = await captured(checkpoints)
    const stuck = join(workspace, 'm/stuck')
    execFileSync('chattr', ['+i', stuck])
    try {
      await expect(checkpoints.restore(one)).rejects.toMatchObject({ code: 'no_checkpoint' })
      expect(await captured(checkpoints)).toBe(two)
      expect(await wasRestoring(join(root, 'checkpoints'))).toBe(false)
    } finally {
      execFileSync('chattr', ['-i', stuck])
    }
    await checkpoints.restore(one)
    expect(readFileSync(stuck, 'utf8')).toBe('one')
  })

  test('a capture that takes too long is not tried again at once', async () => {
    const root = await folderWith({ 'workspace/a': 'one' })
    let now = 0
    await using checkpoints = await openCheckpoints(join(root, 'checkpoints'), join(root, 'workspace'), {
      now: () => now,
      deadline: () => AbortSignal.abort(),
    })
    const reason = async (): Promise<string> => {
      const taken = await checkpoints.capture()
      return taken.type === 'skipped' ? taken.reason : 'captured'
    }
    expect(await reason()).toBe('it takes more than 20 s; the next one is in 5 minutes at the earliest')
    expect(await reason()).toBe('it takes more than 20 s')
    now = 300_001
    expect(await reason()).toContain('5 minutes')
  })

  test('what is ignored now and was not then stays in the checkpoints of the next process', async () => {
    const root = await folderWith({ 'workspace/a.log': 'one' })
    const [store, workspace] = [join(root, 'checkpoints'), join(root, 'workspace')]
    let one = ''
    {
      await using checkpoints = await openCheckpoints(store, workspace)
      one = await captured(checkpoints)
      writeFileSync(join(workspace, '.gitignore'), '*.log\n')
    }
    await using checkpoints = await openCheckpoints(store, workspace)
    writeFileSync(join(workspace, 'a.log'), 'two')
    const two = await captured(checkpoints)
    await checkpoints.restore(one)
    expect([readFileSync(join(workspace, 'a.log'), 'utf8'), existsSync(join(workspace, '.gitignore'))]).toEqual([
      'one',
      false,
    ])
    await checkpoints.restore(two)
    expect(readFileSync(join(workspace, 'a.log'), 'utf8')).toBe('two')
  })

  test('leave out what .gitignore names, repositories, dependencies; a folder that is gone is no crash', async () => {
    const root = await folderWith({
      'workspace/.gitignore': 'secret\n',
      'workspace/secret': 'x',
      'workspace/node_modules/a': 'x',
      'workspace/.git/config': 'x',
    })
    await using checkpoints = await openCheckpoints(join(root, 'checkpoints'), join(root, 'workspace'))
    const before = await checkpoints.capture()
    for (const path of ['secret', 'node_modules/a', '.git/config'])
      writeFileSync(join(root, 'workspace', path), 'changed')
    expect(await checkpoints.capture()).toEqual(before)
    await using gone = await openCheckpoints(join(root, 'other'), join(root, 'none'))
    expect(await gone.capture()).toMatchObject({ type: 'skipped', reason: expect.stringContaining('none') })
  })
})

describe.skipIf(backend === undefined)('a session', () => {
  test('goes back and forth between what its tools did, and loses nothing', { timeout: 240_000 }, async () => {
    const bash = (command: string): string => `- calls: [{ name: bash, arguments: { command: '${command}' } }]\n`
    const root = await folderWith({
      'agent.lua': 'agent { model = "demo/scripted" }\n',
      'sandbox.lua': 'sandbox { packages = { "git", "python3" }, memory = 512 }\n',
      'models.yml':
        'providers:\n  demo:\n    api: scripted\n    models:\n      - { id: scripted, script: turns.yml }\n',
      'turns.yml':
        bash('echo one > a; mkdir d; echo x > d/x; chmod +x d/x; ln -s a link') +
        bash('echo two > a; rm -r d link; echo new > b; echo log > c.log') +
        '- text: Done.\n- text: On another branch.\n',
      'workspace/mine': 'before\n',
      'workspace/.gitignore': '*.log\n',
    })
    const at = (path: string): string => join(root, 'workspace', path)
    await using agent = await openAgent(root, { env: () => undefined, vm: host })
    await using session = await agent.openSession({ session: 'new' })
    await session.harness.recover()
    expect(await session.harness.prompt('go')).toMatchObject({ outcome: 'completed', text: 'Done.' })
    const entries = session.log.lines.filter(({ kind }) => kind === 'entry').map(({ id }) => id)
    const [prompt = '', , first = '', , second = '', last = ''] = entries
    writeFileSync(at('by hand'), 'after the run')
    mkdirSync(at('.git'))
    writeFileSync(at('.git/config'), 'mine')

    const back = await session.rewind(first)
    expect(back.files?.inTheWay).toEqual([])
    expect([
      readFileSync(at('a'), 'utf8'),
      readFileSync(at('d/x'), 'utf8'),
      lstatSync(at('link')).isSymbolicLink(),
    ]).toEqual(['one\n', 'x\n', true])
    expect(lstatSync(at('d/x')).mode & 0o111).toBe(0o111)
    expect([existsSync(at('b')), existsSync(at('by hand'))]).toEqual([false, false])
    expect([readFileSync(at('c.log'), 'utf8'), readFileSync(at('.git/config'), 'utf8')]).toEqual(['log\n', 'mine'])

    await session.rewind(second)
    expect([readFileSync(at('a'), 'utf8'), existsSync(at('d')), readFileSync(at('b'), 'utf8')]).toEqual([
      'two\n',
      false,
      'new\n',
    ])
    // What was changed by hand is of the last entry, where it was found.
    await session.rewind(last)
    expect(readFileSync(at('by hand'), 'utf8')).toBe('after the run')

    // Before any effect: what was there when the first one began.
    await session.rewind(prompt)
    expect(readdirSync(at('')).toSorted()).toEqual(['.git', '.gitignore', 'c.log', 'mine'])
    writeFileSync(at('kept'), 'x')
    expect(await session.rewind(first, { files: false })).toEqual({ entryId: first, files: undefined })
    await expect(session.rewind('e_none')).rejects.toMatchObject({ code: 'unknown_entry' })
    expect(existsSync(at('kept'))).toBe(true)
    expect(session.log.lines.filter(({ kind }) => kind === 'entry').map(({ id }) => id)).toEqual(entries)
  })
})
