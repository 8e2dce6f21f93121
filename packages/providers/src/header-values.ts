/** A piece of a header's value: text as it stands, or a variable of the environment. */
export type HeaderPiece = { readonly text: string } | { readonly variable: string }

/** Headers that carry who asks: their values are secrets, so that no literal may stand in a file. */
const credentials = /^(authorization|proxy-authorization|cookie|.*(api[-_]?key|token|secret).*)$/i
/** What belongs to the connection or to the request itself. */
const ours =
  /^(host|content-length|content-type|transfer-encoding|connection|accept|accept-encoding|expect|te|upgrade)$/i

/** What is wrong with a header of `models.yml`, if anything. The value is never repeated. */
export function headerProblem(name: string, value: string): string | undefined {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) return 'is no name of a header'
  if (ours.test(name)) return 'is set by reve itself'
  if (/[^\t\x20-\x7e]/.test(value)) return 'has characters that no header takes'
  const pieces = headerPieces(value)
  if (credentials.test(name) && !pieces.some((piece) => 'variable' in piece))
    return 'must refer to a $ENV_VAR; secrets do not belong in this file'
  return undefined
}

/** Takes `$NAME` and `${NAME}` out of a value; `$$` is a dollar sign. */
export function headerPieces(value: string): readonly HeaderPiece[] {
  const pieces: HeaderPiece[] = []
  for (const [whole, bare, braced] of value.matchAll(
    /\$\$|\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|[^$]+|\$/g,
  )) {
    const variable = bare ?? braced
    pieces.push(variable === undefined ? { text: whole === '$$' ? '$' : whole } : { variable })
  }
  return pieces
}
