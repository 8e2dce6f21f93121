import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { openConfined } from '@reve/base'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { findSkills, parseSkill } from '../src/skills.ts'

async function workspaceWith(files: Readonly<Record<string, string>>) {
  const root = mkdtempSync(join(tmpdir(), 'skills-'))
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return { root, find: async () => findSkills(await openConfined(root)) }
}
const skill = (name: string, rest = ''): string => `---\nname: ${name}\ndescription: Does ${name}.\n---\n${rest}`

describe('the skills of a workspace', () => {
  test('are found by path, with what is said of them; other files are not skills', async () => {
    const { find } = await workspaceWith({
      'skills/b/SKILL.md': skill('bees', '# Bees'),
      'skills/a/deep/SKILL.md':
        '\uFEFF---\r\nname: "ants"\r\ndescription: >-\r\n  Two\r\n  lines: yes\r\nlicense: MIT\r\n---\r\nText',
      'skills/README.md': 'nothing',
      'skills/d/SKILL.md': '---  \nname: dogs\ndescription: Dogs.\n---\t\n---\n',
      'skills/b/more/SKILL.md': skill('below-a-skill'),
      'skills/c/skill.md': skill('small-letters'),
    })
    expect(await find()).toEqual({
      skills: [
        { name: 'ants', description: 'Two lines: yes', path: 'skills/a/deep/SKILL.md' },
        { name: 'bees', description: 'Does bees.', path: 'skills/b/SKILL.md' },
        { name: 'dogs', description: 'Dogs.', path: 'skills/d/SKILL.md' },
      ],
      problems: [],
    })
  })

  test('a bad one is told, with its place, and hides no other', async () => {
    const { find } = await workspaceWith({
      'skills/a/SKILL.md': '---\nname: a\ndescription: one: two\n---\n',
      'skills/b/SKILL.md': '# no front matter\n',
      'skills/c/SKILL.md': '---\nname: c\n',
      'skills/d/SKILL.md': '---\nname: Big Name\ndescription: x\n---\n',
      'skills/e/SKILL.md': '---\n- a list\n---\n',
      'skills/f/SKILL.md': `---\nname: f\ndescription: ${'x'.repeat(2 << 20)}\n---\n`,
      'skills/good/SKILL.md': skill('good'),
      'skills/twice/SKILL.md': skill('good'),
    })
    const { skills, problems } = await find()
    expect(skills.map(({ name }) => name)).toEqual(['good'])
    expect(problems).toEqual([
      expect.stringMatching(/^skills\/a\/SKILL\.md:3:\d+: /),
      expect.stringMatching(/^skills\/b\/SKILL\.md:1:1: a skill begins/),
      expect.stringMatching(/^skills\/c\/SKILL\.md:1:1: .*has no end/),
      expect.stringMatching(/^skills\/d\/SKILL\.md:2:7: name: takes 1 to 64/),
      expect.stringMatching(/^skills\/e\/SKILL\.md:\d+:\d+: name: is missing/),
      expect.stringMatching(/^skills\/e\/SKILL\.md:\d+:\d+: description: is missing/),
      expect.stringMatching(/^skills\/f\/SKILL\.md: /),
      'skills/twice/SKILL.md: a skill "good" is there already, at skills/good/SKILL.md',
    ])
  })

  test('links are followed inside of the workspace, each folder once, in no circle', async () => {
    const { root, find } = await workspaceWith({ 'skills/a/SKILL.md': skill('a'), 'shared/b/SKILL.md': skill('b') })
    const outside = mkdtempSync(join(tmpdir(), 'outside-'))
    writeFileSync(join(outside, 'SKILL.md'), skill('stolen'))
    symlinkSync('../shared/b', join(root, 'skills/b'))
    symlinkSync('a', join(root, 'skills/again'))
    symlinkSync('..', join(root, 'skills/circle'))
    symlinkSync(outside, join(root, 'skills/out'))
    symlinkSync('none', join(root, 'skills/gone'))
    const { skills, problems } = await find()
    expect(skills.map(({ name, path }) => [name, path])).toEqual([
      ['b', 'shared/b/SKILL.md'],
      ['a', 'skills/a/SKILL.md'],
    ])
    expect(problems).toEqual([
      'skills/circle: this link leads out of the workspace and is not followed',
      'skills/gone: this link leads nowhere and is not followed',
      'skills/out: this link leads out of the workspace and is not followed',
    ])
  })

  test('there may be none, or a file in their place', async () => {
    expect(await (await workspaceWith({})).find()).toEqual({ skills: [], problems: [] })
    expect((await (await workspaceWith({ skills: 'a file' })).find()).problems).toHaveLength(1)
  })

  test('any text is a skill or an error with a place', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string().map((text) => `---\n${text}\n---\n`),
        ),
        (text) => {
          try {
            expect(parseSkill(text, 'f').name).toMatch(/^[a-z0-9]/)
          } catch (error) {
            expect(String(error)).toMatch(/f:\d+:\d+: /)
          }
        },
      ),
      { numRuns: 500 },
    )
  })
})
