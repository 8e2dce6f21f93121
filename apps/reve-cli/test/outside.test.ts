import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { probeBackends } from '@reve/sandbox-microvm'
import { expect, test } from 'vitest'
import { surroundings } from '../src/surroundings.ts'
import { agentFiles, folderWith, main, reve } from './run-cli.ts'

const [backend] = (await probeBackends(surroundings(process.env))).filter(({ ok }) => ok)
if (backend === undefined)
  process.stderr.write('no microVM boots here: what a VM leaves outside of the agent is not looked at\n')

const cacheHome = dirname(surroundings(process.env).cacheDir)

/** A home with an agent in it, and an environment in which everything that a program could think of lies in that home. */
async function home() {
  const root = await folderWith({ 'documents/mine.txt': 'mine' })
  for (const name of ['.cache', '.config', '.local/share', 'run', 'tmp'])
    await mkdir(join(root, name), { recursive: true })
  const env = {
    HOME: root,
    TMPDIR: join(root, 'tmp'),
    XDG_CACHE_HOME: join(root, '.cache'),
    XDG_CONFIG_HOME: join(root, '.config'),
    XDG_DATA_HOME: join(root, '.local/share'),
    XDG_STATE_HOME: join(root, '.local/state'),
    XDG_RUNTIME_DIR: join(root, 'run'),
  }
  return { root, env, agent: join(root, 'agent') }
}

/** Every file and folder below a home, but not what is in its agent. */
async function listing(root: string): Promise<readonly string[]> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true })
  return entries
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .filter((path) => !path.startsWith('agent/'))
    .toSorted()
}

const commands: readonly (readonly string[])[] = [
  ['info'],
  ['tool'],
  ['run', 'hello'],
  ['run', '--continue', 'more'],
  ['run', '--json', '--thinking', 'low', 'again'],
  ['sessions'],
  ['sessions', 'show'],
  ['sessions', 'search', 'hello'],
  ['sessions', 'verify'],
  ['completion', 'bash'],
  ['completion', '--words', 'run', '--model', ''],
  ['completion', '--words', 'rewind', ''],
  ['--help'],
  ['--version'],
  ['frob'],
]

test('no command writes outside of the agent: what is there before is there after, and nothing else', async () => {
  const { root, env, agent } = await home()
  expect((await reve(['init', 'agent'], root, { env: { ...env, npm_config_cache: join(agent, 'npm') } })).code).toBe(0)
  const { 'models.yml': modelsYml = '', 'agent.lua': agentLua = '' } = agentFiles('')
  await writeFile(join(agent, 'models.yml'), modelsYml)
  await writeFile(join(agent, 'agent.lua'), agentLua)
  await writeFile(join(agent, 'turns.yml'), '- text: One.\n- text: Two.\n')
  const before = await listing(root)
  expect(before).not.toContain('.npm')

  const run = (args: readonly string[]) => reve(args, agent, { env })
  for (const args of commands) expect((await run(args)).code).toBe(args[0] === 'frob' ? 2 : 0)
  const [{ file, id }] = JSON.parse((await run(['sessions', '--json'])).stdout) as readonly [
    { readonly file: string; readonly id: string },
  ]
  const [first] = JSON.parse((await run(['sessions', 'show', '--json'])).stdout) as readonly [{ readonly id: string }]
  for (const args of [
    ['sessions', 'name', id, 'mine'],
    ['sessions', 'label', file, first.id, 'start'],
    ['sessions', 'export', id, 'page.html'],
    ['sessions', 'fork', id],
    ['sessions', 'salvage', file],
    ['rewind', first.id],
  ])
    expect((await run(args)).code).toBe(0)
  expect(await listing(root)).toEqual(before)
  expect(await readFile(join(root, 'documents/mine.txt'), 'utf8')).toBe('mine')
})

const hasStrace = spawnSync('strace', ['-qq', '-o', '/dev/null', 'true']).status === 0
if (!hasStrace) process.stderr.write('strace cannot be used here: the calls of the kernel are not looked at\n')

const CHANGES =
  'open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,chmod,fchmodat,chown,fchownat,truncate,utimensat,mknod,mknodat'

/** Paths that a process and its children changed, or opened to write to. */
function changed(trace: string): readonly string[] {
  return trace.split('\n').flatMap((line) => {
    if (/\bopen(?:at2?)?\(/.test(line) && !/O_WRONLY|O_RDWR|O_CREAT|O_TRUNC/.test(line)) return []
    return [...line.matchAll(/(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"/g)].map(([, folder = '', path = '']) =>
      resolve('/', folder, path),
    )
  })
}

test.skipIf(!hasStrace)('nor does the kernel know of any such call', async () => {
  const { root, env, agent } = await home()
  await mkdir(agent)
  for (const [path, text] of Object.entries(agentFiles('- text: One.\n- text: Two.\n')))
    await writeFile(join(agent, path), text)
  const trace = join(root, 'trace')
  for (const args of [['run', 'hello'], ['run', '--continue', 'more'], ['sessions', 'search', 'hello'], ['tool']]) {
    const child = spawn(
      'strace',
      [
        '-f',
        '-y',
        '-qq',
        '-s',
        '4096',
        `--trace=${CHANGES}`,
        '--status=successful',
        '-o',
        trace,
        process.execPath,
        '--conditions=@reve/source',
        main,
        ...args,
      ],
      { cwd: agent, env: { ...process.env, ...env }, stdio: 'ignore' },
    )
    expect([args, await once(child, 'close')]).toEqual([args, [0, null]])
    const paths = changed(await readFile(trace, 'utf8'))
    if (args[0] === 'run') expect(paths.some((path) => path.startsWith(`${agent}/.reve/sessions/main-`))).toBe(true)
    expect(
      paths.filter((path) => !path.startsWith(`${agent}/`) && path !== agent && !path.startsWith('/dev/')),
    ).toEqual([])
  }
})

test.skipIf(!hasStrace)(
  'nor is anything of the home looked for: there is no configuration but the agent’s own',
  async () => {
    const { root, env, agent } = await home()
    await mkdir(agent)
    for (const [path, text] of Object.entries(agentFiles('- text: One.\n- text: Two.\n')))
      await writeFile(join(agent, path), text)
    // What other programs read from such places, and would take for theirs.
    const decoys = [
      'models.yml',
      'agent.lua',
      'sandbox.lua',
      'instructions.md',
      'AGENTS.md',
      'SOUL.md',
      'settings.json',
    ]
    for (const folder of ['', '.reve', '.config/reve', '.local/share/reve', 'workspace']) {
      await mkdir(join(root, folder), { recursive: true })
      for (const name of decoys) await writeFile(join(root, folder, name), 'sentinel-of-the-home')
    }
    const trace = join(root, 'trace')
    for (const args of [['info'], ['run', 'hello'], ['run', '--continue', 'more']]) {
      const child = spawn(
        'strace',
        [
          '-f',
          '-qq',
          '-s',
          '4096',
          '--trace=%file',
          '-o',
          trace,
          process.execPath,
          '--conditions=@reve/source',
          main,
          ...args,
        ],
        { cwd: agent, env: { ...process.env, ...env }, stdio: 'ignore' },
      )
      expect([args, await once(child, 'close')]).toEqual([args, [0, null]])
      const asked = [...(await readFile(trace, 'utf8')).matchAll(/"([^"]*)"/g)].map(([, path = '']) =>
        resolve(agent, path),
      )
      expect(asked.some((path) => path.endsWith('/agent.lua'))).toBe(true)
      // A path is resolved folder by folder; that looks at the home itself, and at nothing in it.
      expect(
        asked.filter((path) => path.startsWith(`${root}/`) && path !== agent && !path.startsWith(`${agent}/`)),
      ).toEqual([])
    }
  },
)

test.skipIf(backend === undefined)(
  'a VM leaves what is rebuilt or gone: a cache and sockets, in their own folders',
  async () => {
    const { root, env, agent } = await home()
    await mkdir(agent)
    for (const [path, text] of Object.entries(agentFiles('- text: x\n'))) await writeFile(join(agent, path), text)
    const before = await listing(root)
    // The image that other tests have made: this is about where things are, not about making one.
    const run = await reve(['exec', 'echo hello'], agent, { env: { ...env, XDG_CACHE_HOME: cacheHome } })
    expect(run).toMatchObject({ code: 0, stdout: 'hello\n' })
    expect((await listing(root)).filter((path) => !before.includes(path) && !/^run\/reve(?:\/|$)/.test(path))).toEqual(
      [],
    )
  },
)
