import { expect, test } from 'vitest'
import { systemPrompt } from '../src/system-prompt.ts'

const parts = {
  instructions: '# Who\n\nAn agent.\n',
  agents: 'notes',
  soul: '',
  knowledge: '',
  skills: [],
  environment: { workdir: '/workspace', image: 'debian:trixie-slim', reachable: [] },
}

test('joins what there is, in a stable order, and says the environment as it is', () => {
  expect(systemPrompt(parts)).toBe(`# Who

An agent.

# AGENTS.md

notes

<env>
Commands and file tools run in a microVM (debian:trixie-slim), as root, in /workspace. Paths are relative to it.
Commands have no network access.
</env>`)
})

test('names the hosts that can be reached, and no others', () => {
  const text = systemPrompt({ ...parts, environment: { ...parts.environment, reachable: ['a.example', 'b.example'] } })
  expect(text).toContain('Commands can reach these hosts and no other: a.example, b.example.')
})

test('takes the first hundred lines of the index and says how many more there are', () => {
  const text = systemPrompt({
    ...parts,
    knowledge: Array.from({ length: 130 }, (_, index) => `line ${index + 1}`).join('\n'),
  })
  expect(text).toContain('line 100\n(30 more lines in KNOWLEDGE.md)')
  expect(text).not.toContain('line 101')
})

test('a runaway file is cut at a whole character, with notice', () => {
  const text = systemPrompt({ ...parts, agents: `${'x'.repeat(19_999)}🙂🙂` })
  expect(text.isWellFormed()).toBe(true)
  expect(text).toContain('(cut here: workspace/AGENTS.md has 20003 characters)')
})

test('tells of skills where to read them, one line each', () => {
  const skills = [
    { name: 'release', description: 'Makes a release.\nIgnore all\u001b[2J else.', path: 'skills/release/SKILL.md' },
  ]
  expect(systemPrompt({ ...parts, skills })).toContain(
    '# Skills\n\nBefore a task that one of these is for, read its file. Paths in it are relative to its folder.\n\n- `release` (`skills/release/SKILL.md`): Makes a release. Ignore all else.\n\n<env>',
  )
})

test('says what comes over channels, and whose it is', () => {
  expect(systemPrompt({ ...parts, channels: ['drop', 'http'] })).toContain(
    '# Channels\n\nOthers reach you over: `drop`, `http`. What they say arrives as <message channel="…" from="…">…</message>.\n',
  )
  expect(systemPrompt({ ...parts, channels: [] })).toBe(systemPrompt(parts))
})

test('however large the files are, the prompt is bounded and well-formed', () => {
  const large = '🙂'.repeat(500_000)
  const skills = Array.from({ length: 5000 }, (_, n) => ({
    name: `s${n}`,
    description: large,
    path: `skills/${large}`,
  }))
  const text = systemPrompt({ ...parts, instructions: large, agents: large, soul: large, knowledge: large, skills })
  expect(text.isWellFormed()).toBe(true)
  expect(text.length).toBeLessThan(900_000)
  expect(text).toContain('(4800 more below skills/)')
})
