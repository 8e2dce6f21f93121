import type { Line, Span, Style } from './spans.ts'

const deepest = 6
const escapable = /[!-/:-@[-`{-~]/
const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: ' ' }

/**
 * The inline part of Markdown: code, strong, emphasis, strike-through, links, images (their text), bare URLs, escapes. What is
 * not closed stays as it is written. Linear in the text but for nesting, which has a bound.
 */
export function inline(text: string, base: Style = {}): Line {
  return parse(text, base, 0)
}

function parse(text: string, style: Style, depth: number): Line {
  const spans: Span[] = []
  let literal = ''
  let at = 0
  // Markers for which there is no end from here on: none has to be looked for twice.
  const endless = new Set<string>()
  const flush = (): void => {
    if (literal !== '') spans.push({ text: literal, style })
    literal = ''
  }
  while (at < text.length) {
    const found = pieceAt(text, at, style, depth, endless)
    if (found === undefined) {
      literal += text[at] ?? ''
      at += 1
      continue
    }
    if (typeof found.piece === 'string') literal += found.piece
    else {
      flush()
      spans.push(...found.piece)
    }
    at = found.end
  }
  flush()
  return spans
}

type Piece = { readonly piece: string | Line; readonly end: number } | undefined

function pieceAt(text: string, at: number, style: Style, depth: number, endless: Set<string>): Piece {
  const character = text[at] ?? ''
  switch (character) {
    case '\\': {
      const next = text[at + 1]
      return next !== undefined && escapable.test(next) ? { piece: next, end: at + 2 } : undefined
    }
    case '`':
      return codeAt(text, at, style, endless)
    case '*':
    case '_':
    case '~':
      return depth < deepest ? emphasisAt(text, at, character, style, depth, endless) : undefined
    case '!':
      return text[at + 1] === '[' && depth < deepest ? linkAt(text, at + 1, style, depth, endless) : undefined
    case '[':
      return depth < deepest ? linkAt(text, at, style, depth, endless) : undefined
    case '<': {
      const [whole, url] = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/.exec(text.slice(at, at + 2012)) ?? []
      return whole === undefined || url === undefined
        ? undefined
        : { piece: [linked(url, url, style)], end: at + whole.length }
    }
    case 'h': {
      if (!text.startsWith('http', at) || /\w/.test(text[at - 1] ?? '')) return undefined
      const [url] = /^https?:\/\/[^\s<>"`]{1,2000}/.exec(text.slice(at, at + 2012)) ?? []
      const bare = url?.replace(/[.,;:!?*_~'"]+$/, '').replace(/^([^(]*)\)+$/, '$1')
      return bare === undefined ? undefined : { piece: [linked(bare, bare, style)], end: at + bare.length }
    }
    case '&': {
      const [whole, name] = /^&([a-z]{2,5});/.exec(text.slice(at, at + 8)) ?? []
      const meant = name === undefined ? undefined : entities[name]
      return whole === undefined || meant === undefined ? undefined : { piece: meant, end: at + whole.length }
    }
    default:
      return undefined
  }
}

const linked = (text: string, url: string, style: Style): Span => ({
  text,
  style: { ...style, role: 'accent', underline: true, link: url },
})

function codeAt(text: string, at: number, style: Style, endless: Set<string>): Piece {
  const [ticks = '`'] = /^`+/.exec(text.slice(at, at + 64)) ?? []
  const start = at + ticks.length
  if (endless.has(ticks)) return { piece: ticks, end: start }
  for (let end = text.indexOf(ticks, start); end >= 0; end = text.indexOf(ticks, end + ticks.length)) {
    if (text[end + ticks.length] === '`' || text[end - 1] === '`') continue
    const code = text.slice(start, end).replaceAll('\n', ' ')
    const shown = /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code
    return { piece: [{ text: shown, style: { ...style, role: 'code' } }], end: end + ticks.length }
  }
  endless.add(ticks)
  return { piece: ticks, end: start }
}

function emphasisAt(
  text: string,
  at: number,
  character: '*' | '_' | '~',
  style: Style,
  depth: number,
  endless: Set<string>,
): Piece {
  const double = text[at + 1] === character
  const marker = double || character === '~' ? character.repeat(2) : character
  if (!text.startsWith(marker, at)) return undefined
  const start = at + marker.length
  const literal = { piece: marker, end: start }
  if (endless.has(marker) || /^\s?$/.test(text[start] ?? '')) return literal
  if (character === '_' && /[\p{L}\p{N}]/u.test(text[at - 1] ?? '')) return literal
  for (let end = text.indexOf(marker, start + 1); end >= 0; end = text.indexOf(marker, end + 1)) {
    if (/[\s\\]/.test(text[end - 1] ?? '')) continue
    // The mark of strong text inside of emphasis is not the emphasis's end.
    if (marker.length === 1 && (text[end + 1] === character || text[end - 1] === character)) {
      if (text[end + 1] === character && text[end - 1] !== character) end += 1
      continue
    }
    if (character === '_' && /[\p{L}\p{N}]/u.test(text[end + marker.length] ?? '')) continue
    // `***both***`: the outer mark ends last.
    const last = marker.length === 2 && text[end + 2] === character ? end + 1 : end
    const inner = parse(text.slice(start, last), { ...style, ...emphasis(marker) }, depth + 1)
    return { piece: inner, end: last + marker.length }
  }
  endless.add(marker)
  return literal
}

function emphasis(marker: string): Style {
  if (marker === '~~') return { strike: true }
  return marker.length === 2 ? { bold: true } : { italic: true }
}

function linkAt(text: string, at: number, style: Style, depth: number, endless: Set<string>): Piece {
  if (endless.has('](')) return undefined
  const middle = text.indexOf('](', at)
  if (middle < 0) {
    endless.add('](')
    return undefined
  }
  const label = text.slice(at + 1, middle)
  // Another link begins before this one's end.
  if (label.length > 1000 || /(?<!!)\[[^\]]*$/.test(label)) return undefined
  const [whole, url] =
    /^\]\(<?([^\s<>]{0,2000}?)>?(?:\s+"[^"]{0,300}")?\)/.exec(text.slice(middle, middle + 2400)) ?? []
  if (whole === undefined || url === undefined) return undefined
  const start = text[at - 1] === '!' ? `image: ${label}` : label
  const leads: Style = /^(?:https?:\/\/|mailto:)/i.test(url) ? { link: url } : {}
  const inner = parse(start === '' ? url : start, { ...style, role: 'accent', underline: true, ...leads }, depth + 1)
  // Where a terminal cannot follow it, the address is worth more than its name.
  const shown =
    leads.link === undefined || label.includes(url)
      ? []
      : [{ text: ` (${url})`, style: { ...style, role: 'faint', ...leads } as const }]
  return { piece: [...inner, ...shown], end: middle + whole.length }
}
