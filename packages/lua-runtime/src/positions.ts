/*
 * Lua does not say where a key of a table was written. This finds it in the source: the call `agent { … }` is known by its
 * line, and the keys of a table constructor that is written out are read off its tokens. What is computed has no entry.
 */

type Token = { readonly kind: 'name' | 'string' | 'symbol' | 'other'; readonly text: string; readonly line: number }

const scanner =
  /(?<space>\s+)|--\[(?<commentLevel>=*)\[[\s\S]*?(?:\]\k<commentLevel>\]|$)|--[^\n]*|\[(?<stringLevel>=*)\[(?<long>[\s\S]*?)(?:\]\k<stringLevel>\]|$)|(?<quoted>"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?)|(?<name>[A-Za-z_]\w*)|(?<number>\.?\d[\w.]*)|(?<symbol>[\s\S])/gy

function tokenize(source: string): readonly Token[] {
  const tokens: Token[] = []
  let line = 1
  for (const match of source.matchAll(scanner)) {
    const groups = match.groups ?? {}
    if (groups['name'] !== undefined) tokens.push({ kind: 'name', text: groups['name'], line })
    else if (groups['quoted'] !== undefined) tokens.push({ kind: 'string', text: groups['quoted'].slice(1, -1), line })
    else if (groups['long'] !== undefined) tokens.push({ kind: 'string', text: groups['long'], line })
    else if (groups['symbol'] !== undefined) tokens.push({ kind: 'symbol', text: groups['symbol'], line })
    else if (groups['number'] !== undefined) tokens.push({ kind: 'other', text: groups['number'], line })
    for (const character of match[0]) if (character === '\n') line += 1
  }
  return tokens
}

const opens = new Set(['{', '(', '[', 'function', 'do', 'if', 'repeat'])
const closes = new Set(['}', ')', ']', 'end', 'until'])

/**
 * The line of each key in the table that is given to `callee` in the call that starts on `line`, by path: keys and
 * zero-based list indices joined by `/`.
 */
export function tableLines(source: string, callee: string, line: number): ReadonlyMap<string, number> {
  const lines = new Map<string, number>()
  const tokens = tokenize(source)
  const is = (index: number, text: string): boolean => tokens[index]?.text === text && tokens[index].kind !== 'string'

  /** `index` is just after `{`; returns the index after its `}`. */
  function table(index: number, prefix: string): number {
    let position = 0
    let at = index
    while (at < tokens.length && !is(at, '}')) {
      const token = tokens[at]
      if (token === undefined) break
      let key: string
      if (token.kind === 'name' && is(at + 1, '=') && !is(at + 2, '=')) {
        key = token.text
        at += 2
      } else if (is(at, '[') && tokens[at + 1]?.kind === 'string' && is(at + 2, ']') && is(at + 3, '=')) {
        key = tokens[at + 1]?.text ?? ''
        at += 4
      } else {
        key = `${position}`
        position += 1
      }
      const path = prefix === '' ? key : `${prefix}/${key}`
      if (!lines.has(path)) lines.set(path, token.line)
      at = is(at, '{') ? skip(table(at + 1, path)) : skip(at)
      if (is(at, ',') || is(at, ';')) at += 1
    }
    return at + 1
  }

  /** Goes over the rest of an expression, up to the `,`, `;` or `}` that ends it. */
  function skip(index: number): number {
    let depth = 0
    for (let at = index; at < tokens.length; at += 1) {
      const token = tokens[at]
      if (token === undefined || token.kind === 'string') continue
      if (depth === 0 && (token.text === ',' || token.text === ';' || token.text === '}')) return at
      if (opens.has(token.text)) depth += 1
      else if (closes.has(token.text)) depth -= 1
    }
    return tokens.length
  }

  const call = tokens.findIndex((token) => token.kind === 'name' && token.text === callee && token.line === line)
  if (call === -1) return lines
  const brace = tokens.findIndex((token, index) => index > call && token.kind === 'symbol' && token.text === '{')
  if (brace !== -1) table(brace + 1, '')
  return lines
}
