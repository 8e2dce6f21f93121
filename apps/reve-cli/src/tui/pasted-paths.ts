const images = /\.(?:png|jpe?g|gif|webp)$/i

/** The kind of an image by its name, as providers take it. */
export function imageType(path: string): string | undefined {
  const [found] = images.exec(path) ?? []
  switch (found?.toLowerCase()) {
    case '.png':
      return 'image/png'
    case '.jpg':
    case '.jpeg':
      return 'image/jpeg'
    case '.gif':
      return 'image/gif'
    case '.webp':
      return 'image/webp'
    default:
      return undefined
  }
}

/**
 * The images that a terminal pastes as paths when files are dropped on it: absolute paths or `file://` addresses, quoted or escaped,
 * divided by spaces or lines. Undefined when the text is anything else.
 */
export function pastedImages(text: string): readonly string[] | undefined {
  if (text.length > 8192) return undefined
  const words = text.trim().match(/'[^']*'|"[^"]*"|(?:\\.|[^\s\\])+/g) ?? []
  const paths = words.map(pathOf)
  const found = paths.filter((path) => path !== undefined && images.test(path))
  return words.length > 0 && found.length === words.length ? found.filter((path) => path !== undefined) : undefined
}

function pathOf(word: string): string | undefined {
  const bare = /^(['"]).*\1$/s.test(word) ? word.slice(1, -1) : word.replaceAll(/\\(.)/g, '$1')
  if (bare.startsWith('file://')) {
    return URL.canParse(bare) ? decoded(new URL(bare).pathname) : undefined
  }
  return bare.startsWith('/') || bare.startsWith('~/') ? bare : undefined
}

function decoded(path: string): string | undefined {
  try {
    return decodeURIComponent(path)
  } catch (error) {
    if (error instanceof URIError) return undefined
    throw error
  }
}
