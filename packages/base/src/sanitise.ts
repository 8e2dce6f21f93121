/**
 * Text from a model, a tool, a channel or a file name, made fit for a terminal: escape sequences are taken out whole,
 * no control character is left but line feed and tab, and characters that change the direction of text are shown.
 */
export function sanitiseTerminal(text: string): string {
  return (
    text
      .toWellFormed()
      .replaceAll(sequences, '')
      .replaceAll('\r\n', '\n')
      // A lone CR moves to the line's start and lets what follows hide what came before.
      .replaceAll('\r', '\n')
      .replaceAll(controls, '\uFFFD')
      .replaceAll(directions, (character) => `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}⟩`)
  )
}

/** One line, at most `maxWidth` characters long; what is cut is marked. */
export function sanitiseLine(text: string, maxWidth = Number.POSITIVE_INFINITY): string {
  const characters = [...sanitiseTerminal(text).replaceAll(/[\n\t]+/g, ' ')]
  if (characters.length <= maxWidth) return characters.join('')
  return `${characters.slice(0, Math.max(0, maxWidth - 1)).join('')}…`
}

// String sequences (OSC, DCS, SOS, PM, APC) up to their terminator or the end, then CSI, then any other escape; each in
// its seven-bit and its eight-bit form.
const sequences =
  /(?:\u001b[\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[\s\S]*?(?:\u0007|\u001b\\|\u009c|$)|(?:\u001b\[|\u009b)[0-?]*[ -/]*(?:[@-~]|$)|\u001b[ -/]*(?:[0-~]|$)/g
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g
const directions = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** What stands where a secret stood. */
const redacted = '[redacted]'
/** A shorter value would redact half of every text. */
const shortestSecret = 6

/** Replaces known secret values, the longest first, so that none shows through as a part of another. */
export function redactSecrets(text: string, secrets: readonly string[]): string {
  return secrets
    .filter((secret) => secret.length >= shortestSecret)
    .toSorted((a, b) => b.length - a.length)
    .reduce((result, secret) => result.replaceAll(secret, redacted), text)
}

/** How many characters at the end of `text` a known secret may begin with that is not whole yet; 0 when there are none. */
export function unfinishedSecret(text: string, secrets: readonly string[]): number {
  let longest = 0
  for (const secret of secrets) {
    if (secret.length < shortestSecret) continue
    const first = secret.charAt(0)
    let at = text.indexOf(first, Math.max(text.length - secret.length + 1, 0))
    while (at >= 0 && text.length - at > longest) {
      if (secret.startsWith(text.slice(at))) longest = text.length - at
      at = text.indexOf(first, at + 1)
    }
  }
  return longest
}
