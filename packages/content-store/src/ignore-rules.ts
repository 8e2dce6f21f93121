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
   * The rules for what is in a directory that is not ignored. A level that would ignore the directory was overruled by a
   * deeper one: the rules that did so must not hide its contents, because the package looks at parents by itself.
   */
  inside(path: string): IgnoreRules {
    let changed = false
    const levels = this.#levels.map((level) => {
      let { lines, rules } = level
      for (
        let verdict = rules.test(relative(level.prefix, path, true));
        verdict.ignored;
        verdict = rules.test(relative(level.prefix, path, true))
      ) {
        const pattern = verdict.rule?.pattern
        const kept = lines.filter((line) => line.trimEnd() !== pattern?.trimEnd())
        if (kept.length === lines.length) break
        changed = true
        lines = kept
        rules = compile(kept)
      }
      return { ...level, lines, rules }
    })
    return changed ? new IgnoreRules(levels) : this
  }

  get isEmpty(): boolean {
    return this.#levels.length === 0
  }
}

const relative = (prefix: string, path: string, isDirectory: boolean): string =>
  (prefix === '' ? path : path.slice(prefix.length + 1)) + (isDirectory ? '/' : '')
