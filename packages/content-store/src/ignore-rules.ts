import ignore, { type Ignore } from 'ignore'

/** Rules of one directory. */
type Level = { readonly prefix: string; readonly lines: readonly string[]; readonly rules: Ignore }

// Bytes as latin1 on both sides: a pattern matches bytes, as git's does, and a name that is not UTF-8 is no exception.
const compile = (lines: readonly string[]): Ignore => ignore({ ignorecase: false }).add([...lines])

/** `.gitignore` rules of a directory and of those above it. */
export class IgnoreRules {
  readonly #levels: readonly Level[]

  private constructor(levels: readonly Level[]) {
    this.#levels = levels
  }

  static readonly none = new IgnoreRules([])

  /** The rules below `prefix` (latin1 bytes of a path, `''` for the root) when its directory has these lines. */
  with(prefix: string, text: string): IgnoreRules {
    const lines = text.replace(/^\xef\xbb\xbf/, '').split(/\r?\n/)
    if (!lines.some((line) => line !== '' && !line.startsWith('#'))) return this
    return new IgnoreRules([...this.#levels, { prefix, lines, rules: compile(lines) }])
  }

  /** Whether a path whose parents are not ignored is; the deepest directory with an opinion has the word. */
  ignores(path: string, isDirectory: boolean): boolean {
    for (const level of this.#levels.toReversed()) {
      const verdict = level.rules.test(relative(level.prefix, path, isDirectory))
      if (verdict.ignored) return true
      if (verdict.unignored) return false
    }
    return false
  }

  /**
   * The rules for what is in a directory that is not ignored. Where a level would ignore the directory, a deeper one overruled
   * it; the package judges what is inside by its parents, so that level is told of the exception.
   */
  inside(path: string): IgnoreRules {
    if (!this.#levels.some((level) => level.rules.test(relative(level.prefix, path, true)).ignored)) return this
    return new IgnoreRules(
      this.#levels.map((level) => {
        if (!level.rules.test(relative(level.prefix, path, true)).ignored) return level
        const lines = [...level.lines, `!/${escape(relative(level.prefix, path, true))}`]
        return { prefix: level.prefix, lines, rules: compile(lines) }
      }),
    )
  }
}

/** A path as a pattern that matches nothing else. */
const escape = (path: string): string => path.replace(/[\\*?[\]!# ]/g, '\\$&')

const relative = (prefix: string, path: string, isDirectory: boolean): string =>
  (prefix === '' ? path : path.slice(prefix.length + 1)) + (isDirectory ? '/' : '')
