import type { Json, JsonObject } from './model.ts'

/**
 * OpenRouter's thoughts (`reasoning_details`), which have to go back as they came: Anthropic's are refused when a signature
 * stands apart from its text, Gemini's calls when the encrypted entry is missing. An entry comes in pieces under one
 * index, its signature often in a piece of its own; entries of another kind or index, and encrypted ones, stay apart.
 */
export function joinDetail(details: JsonObject[], piece: JsonObject): void {
  const at = details.findLastIndex((entry) => entry['type'] === piece['type'] && entry['index'] === piece['index'])
  const before = details[at]
  const joins = before !== undefined && !('data' in piece) && sameId(before, piece)
  // Without an index only neighbours can be one.
  if (!joins || (piece['index'] === undefined && at !== details.length - 1)) {
    details.push(piece)
    return
  }
  const said = Object.fromEntries(Object.entries(piece).filter(([, value]) => value !== null))
  const joined = [...textFields].flatMap((field) => {
    const text = `${textOf(before[field])}${textOf(piece[field])}`
    return text === '' ? [] : [[field, text] as const]
  })
  details[at] = { ...piece, ...before, ...said, ...Object.fromEntries(joined) }
}

/** What a piece shows to people. */
export function detailText(piece: JsonObject): string {
  return textFields.map((field) => textOf(piece[field])).join('')
}

const textFields = ['text', 'summary'] as const

function sameId(a: JsonObject, b: JsonObject): boolean {
  return (a['id'] ?? b['id']) === (b['id'] ?? a['id'])
}

function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : ''
}
