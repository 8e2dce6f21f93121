import { describeIssues } from '@reve/base'
import * as v from 'valibot'
import { ActionError } from './errors.ts'

/** The sandboxes that an action may name. Which of them this version carries: `ActionRunner.isolation()`. */
export const sandboxNames = ['local', 'bwrap', 'docker', 'container', 'microvm'] as const
/** A sandbox's name. */
export type SandboxName = (typeof sandboxNames)[number]

/**
 * A persistent directory that an action sees at `path` of its tree: a compiler's or package manager's cache. Its content is never
 * part of a result. `locked` (default) gives it to one run at a time; `shared` allows several where the sandbox can mount
 * it (the local one cannot: it waits its turn there too).
 */
export type NamedCache = { readonly name: string; readonly path: string; readonly mode?: 'locked' | 'shared' }

/**
 * One run of `argv` on a tree.
 *
 * - `tree`: id of the input tree (64 hex).
 * - `argv`: the program, looked up in the action's `PATH`, and its arguments. No shell is put in between.
 * - `cwd`: directory below the tree's root, `/` between names; default the root.
 * - `env`: joins, and wins over, the constants of the closed environment. Names are `[A-Za-z_][A-Za-z0-9_]*`.
 * - `timeoutS`: seconds until the run is stopped, 600 by default, at most 86,400.
 * - `sandbox`: default that of the runner. `image`: for sandboxes that have images.
 * - `network`: false by default. The local sandbox does not close the network: there it only changes the key.
 * - `gitignore`: true leaves files that the tree's `.gitignore` files ignore, and the input does not track, out of the result.
 * - `fresh`: true runs even if the result is known, and replaces it.
 */
export type Action = {
  readonly tree: string
  readonly argv: readonly string[]
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  readonly timeoutS?: number
  readonly sandbox?: SandboxName
  readonly image?: string
  readonly network?: boolean
  readonly caches?: readonly NamedCache[]
  readonly gitignore?: boolean
  readonly fresh?: boolean
}

/** An action after its checks: defaults filled in, paths normal, caches in the order of their paths. */
export type CheckedAction = {
  readonly tree: string
  readonly argv: readonly [string, ...string[]]
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly timeoutS: number
  readonly sandbox: SandboxName
  readonly image: string | null
  readonly network: boolean
  readonly caches: readonly Required<NamedCache>[]
  readonly gitignore: boolean
  readonly fresh: boolean
}

/** Seconds that an action may run when it does not say. */
export const defaultTimeoutS = 600

const text = v.pipe(
  v.string(),
  v.check((value) => value.isWellFormed(), 'is not valid Unicode (a lone surrogate)'),
  v.check((value) => !value.includes('\0'), 'contains a NUL character'),
)

/** `a/./b/` becomes `a/b`, the root becomes ``; undefined for a path that is absolute or climbs. */
function normalPath(path: string): string | undefined {
  if (path.startsWith('/')) return undefined
  const parts = path.split('/').filter((part) => part !== '' && part !== '.')
  return parts.includes('..') ? undefined : parts.join('/')
}

const inTree = v.pipe(
  text,
  v.check((path) => !path.includes('\\'), 'may not contain a backslash'),
  v.check((path) => normalPath(path) !== undefined, 'must stay below the root of the tree: relative, without ".."'),
  v.transform((path) => normalPath(path) ?? ''),
)

const cacheSchema = v.strictObject({
  name: v.pipe(
    v.string(),
    v.regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
      'must be 1 to 64 letters, digits, ".", "_" or "-", and start with a letter or digit',
    ),
  ),
  path: v.pipe(
    inTree,
    v.check((path) => path !== '', 'must name a directory below the root of the tree'),
    v.check((path) => !path.split('/').some((part) => part.toLowerCase() === '.git'), 'may not be a .git directory'),
  ),
  mode: v.optional(v.picklist(['locked', 'shared']), 'locked'),
})

const overlaps = (a: string, b: string): boolean => a === b || a.startsWith(`${b}/`) || b.startsWith(`${a}/`)

const cachesSchema = v.pipe(
  v.array(cacheSchema),
  v.maxLength(32),
  v.check(
    (caches) => caches.every((a, i) => caches.every((b, j) => i >= j || !overlaps(a.path, b.path))),
    'two caches overlap: no path may be, or lie below, another one',
  ),
  v.check((caches) => new Set(caches.map((cache) => cache.name)).size === caches.length, 'a cache is named twice'),
)

const actionSchema = v.strictObject({
  tree: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/, 'must be a tree id: 64 lowercase hexadecimal digits')),
  argv: v.pipe(
    v.array(text),
    v.minLength(1, 'needs at least the program'),
    v.check((argv) => argv[0] !== '', 'the program has no name'),
    v.check((argv) => argv[0]?.startsWith('-') !== true, 'the program may not start with "-"'),
  ),
  cwd: v.optional(inTree, ''),
  env: v.optional(
    v.record(
      v.pipe(
        v.string(),
        v.regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'a name is letters, digits and "_", not starting with a digit'),
      ),
      text,
    ),
    {},
  ),
  timeoutS: v.optional(v.pipe(v.number(), v.finite(), v.minValue(0.001), v.maxValue(86_400)), defaultTimeoutS),
  sandbox: v.optional(v.picklist(sandboxNames)),
  image: v.optional(v.pipe(text, v.nonEmpty())),
  network: v.optional(v.boolean(), false),
  caches: v.optional(cachesSchema, []),
  gitignore: v.optional(v.boolean(), false),
  fresh: v.optional(v.boolean(), false),
})

/**
 * Checks an action at the edge and fills in its defaults.
 *
 * @throws ActionError `bad_action` that names every field that is wrong.
 */
export function checkAction(action: Action, defaultSandbox: SandboxName): CheckedAction {
  const parsed = v.safeParse(actionSchema, action)
  if (!parsed.success) {
    const issues = describeIssues(parsed.issues).map(
      (issue) => `${issue.path === '' ? 'action' : issue.path}: ${issue.message}`,
    )
    throw new ActionError('bad_action', `the action is not valid: ${issues.join('; ')}`)
  }
  const { argv, caches, sandbox, image, ...rest } = parsed.output
  const [program = '', ...args] = argv
  return {
    ...rest,
    argv: [program, ...args],
    sandbox: sandbox ?? defaultSandbox,
    image: image ?? null,
    caches: [...caches].sort((a, b) => (a.path < b.path ? -1 : 1)),
  }
}
