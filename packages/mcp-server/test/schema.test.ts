import { describe, expect, test } from 'vitest'
import { families } from '../src/families/index.ts'
import { bindCall, toolOf } from '../src/family.ts'

/** Every verb of the specification, with its signature. */
const specified: Readonly<Record<string, readonly string[]>> = {
  seat: ['whoami()', 'update(loop_state?, identity?, system_prompt?)'],
  fs: [
    'read(tree, path, offset?, limit?)',
    'list(tree, path?)',
    'glob(tree, pattern, limit?)',
    'grep(tree, pattern, path?, limit?, ignore_case?)',
    'write(tree, path, content, executable?',
    'edit(tree, path, old, new, replace_all?)',
    'remove(tree, path)',
    'diff(a, b)',
    'empty()',
  ],
  ref: [
    'list()',
    'get(name)',
    'create(name, tree, note?)',
    'move(name, expected_tree, new_tree, note?',
    'history(name, limit?)',
  ],
  branch: ['create(name, from_ref, note?)', 'merge(into, from_ref, note?)', 'discard(name)'],
  exec: [
    'run(tree, argv, cwd?, env?, timeout?, sandbox?, image?, fresh?, caches?, network?, gitignore?)',
    'output(blob, offset?, limit?)',
  ],
  git: [
    'import(src, name, ref?, gitignore?)',
    'export(name, tree, branch, message, start_point?, author?)',
    'push(name, branch, remote?)',
    'log(name, n?)',
  ],
  snapshot: ['create(name, note?)', 'list()', 'rollback(name)'],
  computer: ['metrics(window_s?)', 'events(n?)'],
}

test('there are the eight families of the specification', () => {
  expect(families.map(({ name }) => name)).toEqual(Object.keys(specified))
})

describe.each(families.map((family) => [family.name, family] as const))('%s', (name, family) => {
  const tool = toolOf(family)

  test('has the verbs and signatures of the specification', () => {
    const signatures = Object.values(family.actions).map(({ signature }) => signature)
    for (const [index, signature] of (specified[name] ?? []).entries())
      expect(signatures[index]).toContain(`${name}.${signature}`)
    expect(signatures).toHaveLength(specified[name]?.length ?? 0)
  })

  test('declares every field that a verb takes, and takes every field that it declares', () => {
    const taken = new Set(Object.values(family.actions).flatMap(({ fields }) => fields))
    expect(Object.keys(family.fields).toSorted()).toEqual([...taken].toSorted())
    for (const action of Object.values(family.actions)) {
      const named = [...action.signature.matchAll(/[(,]\s*(\w+)/g)].map((match) => match[1] ?? '')
      expect([...action.fields].toSorted()).toEqual(named.toSorted())
    }
  })

  test('has a schema that every client understands', () => {
    const json = JSON.stringify(tool.inputSchema)
    expect(tool.inputSchema.type).toBe('object')
    expect(tool.inputSchema.additionalProperties).toBe(false)
    for (const keyword of [
      'oneOf',
      'anyOf',
      'allOf',
      '$ref',
      '$defs',
      '$schema',
      'const',
      'propertyNames',
      'nullable',
    ]) {
      expect(json).not.toContain(`"${keyword}"`)
    }
    expect(json).not.toMatch(/"type":\[/)
  })

  test('has a description that no client cuts, and all four hints', () => {
    expect(tool.description.length).toBeLessThanOrEqual(2000)
    expect(tool.description).toMatch(/^Actions:\n/)
    expect(Object.values(tool.annotations).every((hint) => typeof hint === 'boolean')).toBe(true)
    expect(Object.keys(tool.annotations)).toHaveLength(4)
  })
})

describe('a call that does not fit is refused, naming the action, the field and what was expected', () => {
  test.each([
    ['fs', {}, 'fs needs "action", one of read, list'],
    ['fs', { action: 'raed' }, 'fs has no action "raed" (did you mean "read"?)'],
    ['fs', { action: 'read', tree: 'main' }, 'fs.read: "path" must be given. Signature'],
    [
      'fs',
      { action: 'read', tree: 'main', pth: 'x', path: 'x' },
      'fs.read: takes no field "pth" (did you mean "path"?)',
    ],
    ['fs', { action: 'read', tree: 'main', path: 'x', limit: 'ten' }, '"limit" must be a whole number from 1'],
    ['fs', { action: 'read', tree: 'main', path: 'x', content: 'y' }, 'fs.read: takes no field "content"'],
    ['fs', { action: 'edit', tree: 'main', path: 'x', old: '', new: 'y' }, '"old" must not be empty'],
    ['exec', { action: 'run', tree: 'main', argv: [] }, '"argv" must name a program'],
    ['exec', { action: 'run', tree: 'main', argv: 'make test' }, '"argv" must be a list of strings'],
    ['exec', { action: 'run', tree: 'main', argv: ['a'], sandbox: 'none' }, '"sandbox" must be local'],
    ['computer', { action: 'events', n: 0 }, '"n" must be a whole number from 1'],
    ['seat', { action: 'update', token: 'x' }, 'seat.update: takes no field "token"'],
    ['fs', { action: '__proto__' }, 'fs has no action "__proto__"'],
    ['fs', { action: 'constructor' }, 'fs has no action "constructor"'],
    ['fs', [], 'fs takes an object'],
  ])('%s %j', (name, args, message) => {
    const family = families.find((candidate) => candidate.name === name)
    expect(() => family && bindCall(family, args)).toThrow(message)
  })
})
