import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runHostProgram } from './host-process.ts'

export type TextMergeResult =
  | { readonly kind: 'clean'; readonly bytes: Buffer }
  /** The text with conflict markers. */
  | { readonly kind: 'conflict'; readonly bytes: Buffer }
  | { readonly kind: 'unavailable'; readonly why: string }

/** Merges two changes of one text. */
export type TextMerger = {
  /** Largest text that it takes. */
  readonly maxBytes: number
  run(base: Buffer, ours: Buffer, theirs: Buffer): Promise<TextMergeResult>
}

/** `git merge-file` on files in a private folder. `git` is the program's path, when it is not where programs usually are. */
export function gitMerger(options: {
  readonly temporaryFolder: string
  readonly git?: string | undefined
}): TextMerger {
  return {
    maxBytes: 64 << 20,
    run: async (base, ours, theirs) => {
      const folder = mkdtempSync(join(options.temporaryFolder, 'merge-'))
      try {
        writeFileSync(join(folder, 'base'), base, { mode: 0o600 })
        writeFileSync(join(folder, 'ours'), ours, { mode: 0o600 })
        writeFileSync(join(folder, 'theirs'), theirs, { mode: 0o600 })
        const args = [
          '-c',
          'merge.conflictStyle=merge',
          'merge-file',
          '-p',
          '-L',
          'ours',
          '-L',
          'base',
          '-L',
          'theirs',
          'ours',
          'base',
          'theirs',
        ]
        const result = await runHostProgram('git', args, { cwd: folder, path: options.git })
        if (result.kind === 'missing')
          return { kind: 'unavailable', why: 'git is not installed, and it is what merges texts' }
        if (result.code === 0) return { kind: 'clean', bytes: result.stdout }
        // The code counts the conflicts, up to 127; what is above is a failure.
        if (result.code !== null && result.code < 128) return { kind: 'conflict', bytes: result.stdout }
        return { kind: 'unavailable', why: `git merge-file failed: ${result.stderr.trim().slice(0, 500)}` }
      } finally {
        rmSync(folder, { recursive: true, force: true })
      }
    },
  }
}
