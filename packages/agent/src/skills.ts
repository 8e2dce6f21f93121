import { realpath } from 'node:fs/promises'
import { isAbsolute, join, relative, sep } from 'node:path'
import { type Confined, isReveError, messageOf, sanitiseLine } from '@reve/base'
import { parseYaml, YamlError } from '@reve/base/yaml'
import * as v from 'valibot'

/** Instructions for one kind of task, which the model reads when it has such a task. */
export type Skill = {
  readonly name: string
  readonly description: string
  /** Of its SKILL.md, relative to `workspace/`. */
  readonly path: string
}

/** The skills of an agent, and what is wrong with those that are left out. */
export type Skills = {
  /** By path. */
  readonly skills: readonly Skill[]
  /** Each begins with the file, and its line and column where there is one. */
  readonly problems: readonly string[]
}

const FOLDER = 'skills'
const FILE = 'SKILL.md'
const MOST_BYTES = 1 << 20
const MOST_DEPTH = 8
const MOST_FOLDERS = 2000

const FrontMatter = v.looseObject(
  {
    name: v.pipe(v.string('must be text'), v.regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'takes 1 to 64 of a-z, 0-9, _ and -')),
    description: v.pipe(v.string('must be text'), v.trim(), v.nonEmpty('must not be empty')),
  },
  (issue) => ((issue.expected ?? '').startsWith('"') ? 'is missing' : 'must be a mapping with name and description'),
)

/**
 * The front matter of a SKILL.md: YAML between two lines `---`, of which the first is the file's.
 *
 * @throws YamlError with file:line:column.
 */
export function parseSkill(source: string, file: string): Pick<Skill, 'name' | 'description'> {
  const lines = source.replace(/^\uFEFF/, '').split(/\r?\n/)
  const end = lines.findIndex((line, index) => index > 0 && line.trimEnd() === '---')
  const problem = (line: number, message: string): YamlError =>
    new YamlError('yaml_syntax', [{ file, line, column: 1, path: '', message }])
  if (lines[0]?.trimEnd() !== '---')
    throw problem(1, 'a skill begins with a line "---", then name and description, then "---"')
  if (end < 0) throw problem(1, 'the front matter that begins here has no end: a line "---"')
  // An empty line for the first one, so that the lines of messages are those of the file.
  const { name, description } = parseYaml(['', ...lines.slice(1, end)].join('\n'), file, FrontMatter)
  return { name, description }
}

/**
 * Looks for every SKILL.md below `skills/` in a workspace that its guest may be changing. What lies below a SKILL.md is that skill's
 * own. Links are followed inside of the workspace, each folder once.
 */
export async function findSkills(workspace: Confined): Promise<Skills> {
  const skills: Skill[] = []
  const problems: string[] = []
  const seen = new Set<string>()
  let folders = 0

  const take = async (path: string): Promise<void> => {
    try {
      const { name, description } = parseSkill(await workspace.readText(path, { maxBytes: MOST_BYTES }), path)
      const first = skills.find((skill) => skill.name === name)
      if (first === undefined) skills.push({ name, description, path })
      else problems.push(`${path}: a skill "${name}" is there already, at ${first.path}`)
    } catch (error) {
      if (!isReveError(error)) throw error
      problems.push(...(error instanceof YamlError ? error.message.split('\n') : [`${path}: ${error.message}`]))
    }
  }

  const visit = async (path: string, depth: number): Promise<void> => {
    if (seen.has(path)) return
    seen.add(path)
    folders += 1
    if (depth > MOST_DEPTH || folders > MOST_FOLDERS) {
      const text = `${FOLDER}: folders more than ${MOST_DEPTH} deep, or beyond ${MOST_FOLDERS}, are not looked at`
      if (!problems.includes(text)) problems.push(text)
      return
    }
    const entries = await workspace.list(path)
    if (entries.some(({ name, kind }) => name === FILE && kind === 'file')) return take(`${path}/${FILE}`)
    for (const { name, kind } of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      if (kind === 'folder') await visit(`${path}/${name}`, depth + 1)
      if (kind === 'link') await follow(`${path}/${name}`, depth + 1)
    }
  }

  const follow = async (path: string, depth: number): Promise<void> => {
    // Only where it leads is asked; what is there is read as any other path is, without following links.
    const target = await realpath(join(workspace.root, path)).catch(() => undefined)
    const inside = target === undefined ? undefined : relative(workspace.root, target)
    if (inside === undefined || inside === '' || inside.startsWith('..') || isAbsolute(inside)) {
      problems.push(
        `${path}: this link leads ${target === undefined ? 'nowhere' : 'out of the workspace'} and is not followed`,
      )
      return
    }
    const kind = await workspace.stat(inside.split(sep).join('/'))
    if (kind.kind === 'folder') await visit(inside.split(sep).join('/'), depth)
  }

  try {
    if (await workspace.exists(FOLDER)) await visit(FOLDER, 0)
  } catch (error) {
    // Somebody else may be at work in there: the next look is right again.
    if (!isReveError(error)) throw error
    problems.push(`${FOLDER}: ${messageOf(error)}`)
  }
  return {
    skills: skills.toSorted((a, b) => (a.path < b.path ? -1 : 1)),
    problems: problems.map((problem) => sanitiseLine(problem, 300)),
  }
}
