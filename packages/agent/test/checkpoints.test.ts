import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { probeBackends } from '@reve/sandbox-microvm'
import { describe, expect, test } from 'vitest'
import { openCheckpoints, tryCheckpoints } from '../src/checkpoints.ts'
import { openAgent } from '../src/index.ts'

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

describe('checkpoints of a folder', () => {
  test('bring the files back, with what they replaced kept; a restore that was cut off is finished at the next opening', async () => {
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
    writeFileSync(join(store, 'restoring.json'), JSON.stringify({ version: 1, to: one }))
    await using again = await openCheckpoints(store, workspace)
    expect(readFileSync(join(workspace, 'a'), 'utf8')).toBe('one')
    expect([existsSync(join(store, 'restoring.json')), await again.capture()]).toEqual([
      false,
      { type: 'captured', tree: one },
    ])
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
