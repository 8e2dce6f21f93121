import fc from 'fast-check'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { parseYaml, YamlError } from '../src/yaml.ts'

const Models = v.strictObject({
  providers: v.record(
    v.string(),
    v.strictObject({
      apiKey: v.pipe(v.string(), v.startsWith('$', 'must be a $VARIABLE')),
      models: v.array(v.strictObject({ id: v.string(), size: v.number('must be a number') })),
    }),
  ),
})

const issuesOf = (source: string): readonly string[] => {
  try {
    parseYaml(source, 'models.yml', Models)
  } catch (error) {
    if (error instanceof YamlError) return error.message.split('\n')
    throw error
  }
  return []
}

test('gives the typed value', () => {
  expect(parseYaml('providers:\n  a: { apiKey: $A, models: [{ id: m, size: 3 }] }\n', 'models.yml', Models)).toEqual({
    providers: { a: { apiKey: '$A', models: [{ id: 'm', size: 3 }] } },
  })
})

test('lists every issue with its line and column', () => {
  const source = `# comment
providers:
  first:
    apiKey: sk-literal
    models:
      - id: one
        size: big
      - { id: two, size: 2 }
  second:
    apiKey: $B
    models:
      - id: 三
        size: [1]
`
  expect(issuesOf(source)).toEqual([
    'models.yml:4:13: providers/first/apiKey: must be a $VARIABLE',
    'models.yml:7:15: providers/first/models/0/size: must be a number',
    'models.yml:13:15: providers/second/models/0/size: must be a number',
  ])
})

test.each([
  ['a: b: c\n', /^models\.yml:1:5: /],
  ['a: 1\na: 2\n', /^models\.yml:2:1: .*dupli/i],
  ['a: [1, 2\n', /^models\.yml:\d+:\d+: /],
  ['\tx: 1\n', /^models\.yml:1:\d+: /],
])('a syntax error in %j has its place', (source, message) => {
  expect(issuesOf(source)[0]).toMatch(message)
})

test('an alias is followed, unless it names what it stands in or makes a document explode', () => {
  expect(parseYaml('a: &x [1, 2]\nb: *x\n', 'x.yml', v.unknown())).toEqual({ a: [1, 2], b: [1, 2] })
  const refusal = (source: string): string => {
    try {
      parseYaml(source, 'x.yml', v.unknown())
      return 'it was taken'
    } catch (error) {
      return error instanceof YamlError ? error.message : String(error)
    }
  }
  expect(refusal('a: &x [1, *x]\n')).toBe('x.yml:1:12: the alias *x stands inside of what it names')
  const bomb = Array.from(
    { length: 9 },
    (_, level) =>
      `l${level}: &l${level} [${Array(9)
        .fill(level === 0 ? 'x' : `*l${level - 1}`)
        .join(', ')}]`,
  ).join('\n')
  expect(refusal(bomb)).toMatch(/^x\.yml:6:\d+: with the alias \*l4 the document has more than 100000 values$/)
})

test('an empty file and one of comments are null', () => {
  expect(parseYaml('', 'x.yml', v.null())).toBeNull()
  expect(parseYaml('# only this\n\n  # and this\n', 'x.yml', v.null())).toBeNull()
})

test('any text gives a value or a YamlError', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.string({
          unit: fc.constantFrom('a', ':', ' ', '\n', '-', '[', ']', '{', '}', '&', '*', '#', '"', "'", '|', '!'),
        }),
      ),
      (source) => {
        try {
          parseYaml(source, 'x.yml', v.unknown())
        } catch (error) {
          expect(error).toBeInstanceOf(YamlError)
        }
      },
    ),
    { numRuns: 3000 },
  )
})
