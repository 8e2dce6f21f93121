import { expect, test } from 'vitest'
import { tableLines } from '../src/positions.ts'

const lines = (source: string, line = 1): Record<string, number> =>
  Object.fromEntries(tableLines(source, 'agent', line))

test('keys, list items, nesting, separators', () => {
  expect(lines('agent {\n  a = 1;\n  b = {\n    "x",\n    c = 2,\n  },\n  ["d e"] = 3,\n}')).toEqual({
    a: 2,
    b: 3,
    'b/0': 4,
    'b/c': 5,
    'd e': 7,
  })
})

test('functions, strings, comments and comparisons do not confuse it', () => {
  const source = `agent({
  f = function(a, b)
    if a == b then return { x = 1, y = 2 } end
    for i = 1, 2 do local s = "}, z = 1" end
    repeat a = 1 until true
  end,
  -- g = 1,
  --[[ h = 1,
  ]]
  i = [==[
    ]] , j = 1 }
  ]==],
  k = 'it\\'s } ,', l = x == y,
  m = g { n = 1 },
})`
  expect(lines(source)).toEqual({ f: 2, i: 10, k: 13, l: 13, m: 14 })
})

test('what is not written out, or not there, has no line', () => {
  expect(lines('agent(config)')).toEqual({})
  expect(lines('agent { a = 1 }', 7)).toEqual({})
  expect(lines('agent { a = ')).toEqual({ a: 1 })
  expect(lines('agent {{{{')).toMatchObject({ 0: 1 })
})
