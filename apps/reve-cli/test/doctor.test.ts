import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createSession } from '@reve/session-log'
import { describe, expect, test } from 'vitest'
import type { Finding } from '../src/findings.ts'
import { agentFiles, folderWith, reve } from './run-cli.ts'

/** Without any program to make a VM with, so that nothing is booted. */
async function doctor(folder: string, env: Readonly<Record<string, string>> = {}) {
  const run = await reve(['doctor', '--json'], folder, {
    env: { XDG_CACHE_HOME: join(folder, 'cache'), REVE_PROGRAM_PATH: join(folder, 'none'), GITHUB_TOKEN: '', ...env },
  })
  const findings = JSON.parse(run.stdout) as readonly Finding[]
  const of = (subject: string) => findings.filter((finding) => finding.subject === subject)
  return { ...run, of }
}

const models = `providers:
  demo:
    api: scripted
    models:
      - { id: scripted, script: turns.yml }
  hosted:
    api: openai-completions
    baseUrl: http://127.0.0.1:9
    apiKey: $SOME_KEY
    models: [{ id: a }, { id: b }]
  wrong:
    api: openai-completions
    modles: []
`

describe('reve doctor', () => {
  test('asks the MCP servers of agent.lua, and says why one does not answer', async () => {
    const folder = await folderWith({
      ...agentFiles('- text: x\n'),
      'agent.lua': 'agent { model = "demo/scripted", mcp = { gone = { url = "http://127.0.0.1:9/mcp" } } }',
    })
    expect((await doctor(folder)).of('mcp')).toMatchObject([
      {
        state: 'note',
        text: expect.stringMatching(/^gone \(http:.*\): it has a port that belongs to another protocol/),
      },
    ])
    const info = await reve(['info'], folder)
    expect(info.stdout).toMatch(/^mcp +gone$/m)
  })

  test('says what a machine has and lacks, and exits with 4 where nothing boots', async () => {
    const { code, of, stderr } = await doctor(await folderWith({}))
    expect(code).toBe(4)
    expect(stderr).toContain('no microVM can boot here')
    expect(of('node')).toMatchObject([{ state: 'ok' }])
    expect(of('programs')).toMatchObject([
      { state: 'bad', text: expect.stringMatching(/qemu-system-x86_64 \(.*get them with: /) },
    ])
    expect(of('kvm')).toHaveLength(1)
    expect(of('qemu')).toMatchObject([{ state: 'note', text: expect.stringContaining('Install it with') }])
    expect(of('disk')).toMatchObject([{ text: expect.stringMatching(/ free for images \(/) }])
    // Not being in an agent's folder is nothing bad.
    expect(of('agent')).toMatchObject([{ state: 'note', text: expect.stringContaining('not an agent directory') }])
  })

  test('in an agent: its model, each provider with the variable it lacks, each secret, skills, sessions, the image', async () => {
    const folder = await folderWith({
      ...agentFiles('- text: x\n'),
      'models.yml': models,
      'sandbox.lua':
        'sandbox { allow = { "github.com" }, secrets = { { env = "T", source = "GITHUB_TOKEN", hosts = { "github.com" } } } }\n',
      'workspace/HEARTBEAT.yml': 'tasks:\n  - { name: watch, every: 1 hour, prompt: x }\n',
      'workspace/skills/good/SKILL.md': '---\nname: good\ndescription: d\n---\n',
      'workspace/skills/bad/SKILL.md': '---\nname: bad\ndescription: a: b\n---\n',
    })
    await mkdir(join(folder, '.reve', 'sessions'), { recursive: true })
    await writeFile(join(folder, '.reve', 'sessions', 'main-broken.jsonl'), 'dear diary\n')
    const log = await createSession(join(folder, '.reve', 'sessions', 'main-x.jsonl'), { cwd: 'w' })
    await log.append([
      {
        kind: 'record',
        lane: 'main',
        type: 'operation_started',
        payload: { runId: 'run_1', intent: { kind: 'run' }, sourceLeafId: null },
      },
    ])
    await log.close()
    const { of } = await doctor(folder, { SOME_KEY: '' })
    expect(of('agent')).toMatchObject([{ state: 'ok', text: expect.stringContaining('model demo/scripted') }])
    expect(of('model')).toMatchObject([{ state: 'ok' }])
    expect(of('provider')).toMatchObject([
      { state: 'ok', text: expect.stringContaining('demo: 1 model') },
      { state: 'note', text: expect.stringContaining('$SOME_KEY, which is empty') },
      { state: 'bad', text: expect.stringMatching(/models\.yml:\d+:\d+: .*modles/) },
    ])
    expect(of('secret')).toEqual([
      { subject: 'secret', state: 'note', text: 'GITHUB_TOKEN is not set (for github.com)' },
    ])
    expect(of('skills')).toMatchObject([{ state: 'ok', text: 'good' }])
    expect(of('skill')).toMatchObject([{ state: 'bad', text: expect.stringMatching(/skills\/bad\/SKILL\.md:3:/) }])
    expect(of('heartbeats')).toMatchObject([
      { state: 'bad', text: expect.stringMatching(/HEARTBEAT\.yml:2:\d+: .*1 hour/) },
    ])
    expect(of('image')).toMatchObject([
      { state: 'note', text: expect.stringContaining('debian:trixie-slim is not in the cache') },
    ])
    expect(of('session').map(({ text }) => text)).toEqual([
      expect.stringContaining('"reve run --continue"'),
      expect.stringContaining('main-broken.jsonl cannot be read'),
    ])
    const set = await doctor(folder, { SOME_KEY: 'sk-sentinel', GITHUB_TOKEN: 'gh-sentinel' })
    expect(set.of('provider')[1]).toMatchObject({ state: 'ok', text: expect.stringContaining('hosted: 2 models') })
    expect(set.of('secret')).toMatchObject([{ state: 'ok', text: expect.stringContaining('GITHUB_TOKEN is set') }])
    expect(set.stdout + set.stderr).not.toContain('sentinel')
  })

  test('every mistake of the configuration with its place', async () => {
    const folder = await folderWith(agentFiles('- text: x\n'))
    await writeFile(join(folder, 'agent.lua'), 'agent {\n  modle = 1,\n  thinking = "loud",\n}\n')
    await writeFile(join(folder, 'sandbox.lua'), '\nsandbox { cpu = 2 }\n')
    const { of } = await doctor(folder)
    const [{ state, text } = { state: 'ok', text: '' }, ...others] = of('agent')
    expect([state, others]).toEqual(['bad', []])
    expect(text.split('\n').toSorted()).toEqual([
      expect.stringMatching(/^agent\.lua:2: modle: .*did you mean "model"/),
      expect.stringMatching(/^agent\.lua:3: thinking: /),
      expect.stringMatching(/^sandbox\.lua:2: cpu: .*did you mean "cpus"/),
    ])
    await rm(join(folder, 'models.yml'))
    await writeFile(join(folder, 'agent.lua'), 'agent { model = "a/b" }\n')
    await writeFile(join(folder, 'sandbox.lua'), '')
    const without = await doctor(folder)
    expect(without.of('model')).toMatchObject([
      { state: 'bad', text: expect.stringContaining('models.yml cannot be read') },
    ])
    expect(without.of('provider')).toEqual([])
  })

  test('for a human: a mark, and what is long is indented and harmless', async () => {
    const folder = await folderWith({ ...agentFiles('- text: x\n'), 'workspace/skills/\u001b[31mevil/SKILL.md': 'x' })
    const { stdout } = await reve(['doctor'], folder, {
      env: { XDG_CACHE_HOME: join(folder, 'cache'), REVE_PROGRAM_PATH: join(folder, 'none') },
    })
    expect(stdout).not.toContain('\u001b')
    for (const line of stdout.trimEnd().split('\n')) expect(line).toMatch(/^(?:[✓!✗] \S+ +| {16})\S/)
  })
})
