import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { probeBackends } from '@reve/sandbox-microvm'
import { describe, expect, test } from 'vitest'
import { surroundings } from '../src/surroundings.ts'
import { agentFiles, folderWith, reve } from './run-cli.ts'

const [backend] = (await probeBackends(surroundings(process.env))).filter(({ ok }) => ok)
if (backend === undefined) process.stderr.write('no microVM boots here: what needs one is not tested\n')

/** Waits for the file, and for what it is to say: a shell makes it before it writes to it. */
const until = async (file: string, contents = ''): Promise<void> => {
  while ((await readFile(file, 'utf8').catch(() => undefined))?.endsWith(contents) !== true)
    await new Promise((done) => setTimeout(done, 20))
}

const sessionOf = async (folder: string): Promise<readonly { readonly [key: string]: unknown }[]> => {
  const [name = ''] = (await readdir(join(folder, '.reve', 'sessions'))).filter((file) => file.endsWith('.jsonl'))
  return (await readFile(join(folder, '.reve', 'sessions', name), 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
}

describe.skipIf(backend === undefined)('in a real microVM', () => {
  test("reve exec gives the command's output and code, reve tool a Lua tool's text; the disk stays", async () => {
    const folder = await folderWith({
      ...agentFiles('- text: x\n'),
      'tools/count.lua':
        'tool("count", { description = "d", params = { { name = "n", type = "integer", required = true } }, run = function(args, ctx) return ctx.sh("seq " .. args.n .. " | wc -l") end })',
      'workspace/hello.txt': 'hello\n',
    })
    expect(
      await reve(['exec', 'cat hello.txt; echo on disk >/root/kept; echo oops >&2; exit 7'], folder),
    ).toMatchObject({
      code: 7,
      stdout: 'hello\n',
      stderr: expect.stringContaining('oops'),
    })
    expect(await reve(['exec', '--', 'cat', '/root/kept'], folder)).toMatchObject({ code: 0, stdout: 'on disk\n' })
    expect(await reve(['tool', 'count', '--args', '{"n":12}'], folder)).toMatchObject({ code: 0, stdout: '12\n\n' })
    expect(await reve(['tool', 'count'], folder)).toMatchObject({ code: 1, stderr: expect.stringMatching(/count.*n/) })
    expect(await reve(['tool', 'count', '--args', '[1]'], folder)).toMatchObject({ code: 2 })
  })

  test('a microVM that another process has is refused, naming it; with --wait it is waited for', async () => {
    const folder = await folderWith({ ...agentFiles('- text: x\n'), 'workspace/.keep': '' })
    const first = reve(['exec', 'touch held; until [ -e free ]; do sleep 0.2; done; echo done'], folder)
    await until(join(folder, 'workspace', 'held'))
    expect(await reve(['exec', 'true'], folder)).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/in use by .*\d+/),
    })
    const waiting = reve(['exec', '--wait', '--', 'echo', 'at last'], folder)
    await writeFile(join(folder, 'workspace', 'free'), '')
    expect(await first).toMatchObject({ code: 0, stdout: 'done\n' })
    expect(await waiting).toMatchObject({ code: 0, stdout: 'at last\n' })
  })

  test('killed with SIGKILL inside a tool: nothing is run twice, what is unknown is said, and the work goes on', async () => {
    const folder = await folderWith({
      ...agentFiles(`- calls: [{ name: bash, arguments: { command: "echo run >>ran; sleep 300" } }]
- calls: [{ name: bash, arguments: { command: "wc -l <ran" } }]
- text: Looked again.
`),
      'workspace/.keep': '',
    })
    const killed = await reve(['run', 'go'], folder, {
      started: (child) => void until(join(folder, 'workspace', 'ran'), 'run\n').then(() => child.kill('SIGKILL')),
    })
    expect(killed.signal).toBe('SIGKILL')
    const before = await sessionOf(folder)
    const intent = before.findLast(({ type }) => type === 'tool_started')
    expect(intent).toMatchObject({ kind: 'record', toolName: 'bash', replay: 'never' })
    // What the files were before it.
    expect(before.at(-1)).toMatchObject({ kind: 'record', type: 'checkpoint' })

    const resumed = await reve(['run', '--continue'], folder)
    expect(resumed).toMatchObject({ code: 0, stdout: 'Looked again.\n' })
    expect(resumed.stderr).toContain('the last run was interrupted')
    expect(resumed.stderr).toContain('bash was running: its outcome is unknown')
    expect(resumed.stderr).not.toContain('not run)')
    expect(await readFile(join(folder, 'workspace', 'ran'), 'utf8')).toBe('run\n')

    const after = await sessionOf(folder)
    expect(after.slice(0, before.length)).toEqual(before)
    expect(after.find((line) => line['id'] === intent?.['resultEntryId'])).toMatchObject({
      kind: 'entry',
      message: { role: 'toolResult', isError: true },
    })
    expect(
      after.filter((line) => line['type'] === 'operation_finished').map((line) => [line['outcome'], line['reason']]),
    ).toEqual([
      ['aborted', 'recovered'],
      ['completed', undefined],
    ])
    expect(await reve(['sessions', 'verify'], folder)).toMatchObject({ code: 0 })
  })

  test('a second process is refused while the VM is in use, naming the first', async () => {
    const folder = await folderWith({ ...agentFiles('- text: x\n'), 'workspace/.keep': '' })
    let pid: number | undefined
    const first = reve(['exec', 'touch began; sleep 30'], folder, { started: (child) => (pid = child.pid) })
    await until(join(folder, 'workspace', 'began'))
    expect(await reve(['exec', 'true'], folder)).toMatchObject({
      code: 125,
      stderr: expect.stringContaining(`process ${pid}`),
    })
    if (pid !== undefined) process.kill(pid, 'SIGINT')
    expect((await first).code).toBe(130)
  })

  test('a failing bootstrap fails the start, says why, and leaves no half-made disk', async () => {
    const folder = await folderWith({ ...agentFiles('- text: x\n'), 'workspace/.keep': '' })
    await writeFile(
      join(folder, 'sandbox.lua'),
      'sandbox { packages = { "git", "python3" }, memory = 512, bootstrap = { "echo broken >&2; exit 9" } }\n',
    )
    const run = await reve(['exec', 'true'], folder)
    expect(run).toMatchObject({ code: 125, stderr: expect.stringMatching(/exit 9|ended with 9/) })
    expect(run.stderr).toContain('broken')
    expect((await readdir(join(folder, '.reve', 'vm'))).filter((name) => name.includes('qcow2'))).toEqual([])
  })
})

test.skipIf(backend === undefined)(
  'doctor says what is wrong with an agent and its model, and exits with 3',
  async () => {
    const folder = await folderWith(agentFiles('- text: x\n'))
    expect(await reve(['doctor'], folder)).toMatchObject({ code: 0, stdout: expect.stringContaining('✓ model') })
    await writeFile(join(folder, 'models.yml'), 'providers: {}\n')
    expect(await reve(['doctor'], folder)).toMatchObject({ code: 3, stdout: expect.stringContaining('✗ model') })
    await writeFile(join(folder, 'agent.lua'), 'agent { modle = 1 }\n')
    expect(await reve(['doctor'], folder)).toMatchObject({ code: 3, stdout: expect.stringContaining('modle') })
  },
)

test('without QEMU nothing runs on the host instead, and the message has the command that gets it', async () => {
  const folder = await folderWith({
    ...agentFiles('- calls: [{ name: bash, arguments: { command: "touch ran-on-the-host" } }]\n- text: x\n'),
    'workspace/.keep': '',
  })
  const env = { XDG_CACHE_HOME: join(folder, 'cache'), REVE_PROGRAM_PATH: join(folder, 'no-programs') }
  expect(await reve(['exec', 'touch ran-on-the-host'], folder, { env })).toMatchObject({
    code: 125,
    stderr: expect.stringMatching(/without qemu-system-x86_64.*Install it with: (apt-get install|brew install)/s),
  })
  const run = await reve(['run', 'go'], folder, { env })
  // The second turn of the script is never asked for.
  expect(run).toMatchObject({ code: 4, stdout: '', stderr: expect.stringContaining('Install it with') })
  expect((await sessionOf(folder)).filter((line) => line['type'] === 'task_attempt')).toHaveLength(1)
  expect((await sessionOf(folder)).at(-1)).toMatchObject({ type: 'operation_finished', outcome: 'aborted' })
  expect(await readdir(join(folder, 'workspace'))).toEqual(['.keep'])
  expect(await readdir(folder)).not.toContain('ran-on-the-host')
  await mkdir(join(folder, 'tools'))
  await writeFile(
    join(folder, 'tools', 'look.lua'),
    'tool("look", { description = "d", run = function(args, ctx) return ctx.sh("true") end })',
  )
  expect(await reve(['tool', 'look'], folder, { env })).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('qemu-system-x86_64'),
  })
  expect(await reve(['doctor'], folder, { env })).toMatchObject({ code: 4, stdout: expect.stringContaining('missing') })
})
