import { createHash } from 'node:crypto'
import { type Confined, type ConfinedEntry, isReveError, openConfined } from '@reve/base'

/**
 * Files of a shared folder that programs of the host run, or take commands from, without being asked to: a guest that writes
 * one has a command run as the user. Nothing keeps a guest from it; what can be done is to tell.
 */
export type HostRunFiles = ReadonlyMap<string, string>

/** Deeper ones, and those of very large trees, are not looked at: this is a hint, and runs at every start and stop. */
const MAX_DEPTH = 4
const MAX_FOLDERS = 400
const MAX_CONFIG_BYTES = 1 << 20

/** What runs them, by the end of their path. */
const WATCHED: readonly { readonly by: string; readonly path: RegExp }[] = [
  { by: 'git', path: /(^|\/)\.husky\/[^/]+$/ },
  { by: 'direnv', path: /(^|\/)\.envrc$/ },
  { by: 'mise', path: /(^|\/)(\.?mise(\.local)?\.toml|\.config\/mise\.toml)$/ },
  { by: 'editors', path: /(^|\/)\.vscode\/(tasks|settings|launch|mcp)\.json$/ },
  { by: 'editors', path: /(^|\/)\.(idea\/workspace\.xml|nvim\.lua|nvimrc|exrc|dir-locals\.el)$/ },
  { by: 'other agents', path: /(^|\/)(\.claude\/settings(\.local)?\.json|\.cursor\/(mcp|hooks)\.json|\.mcp\.json)$/ },
]
/** Folders that hold such files and are not worth a walk otherwise. */
const HOLDERS: readonly string[] = ['.husky', '.config', '.vscode', '.idea', '.claude', '.cursor']

/** Keys of a git configuration whose value is a command, or leads to more configuration. */
const COMMANDS =
  /^(core\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)|alias\..+|pager\..+|include(if)?\..*path|credential\.(.*\.)?helper|diff\.(external|.+\.(command|textconv))|merge\..+\.driver|filter\..+\.(clean|smudge|process)|gpg\.(.+\.)?program|sequence\.editor|(difftool|mergetool|browser|man)\..+\.(cmd|path)|sendemail\..*cmd|interactive\.difffilter|remote\..+\.(uploadpack|receivepack|vcs)|protocol\..*allow|trailer\..+\.(cmd|command)|uploadpack\.packobjectshook|web\.browser|help\.browser|instaweb\..+)$/

/** Looks at what is there now. Links are not followed, and no larger part of a tree is walked than that costs a moment. */
export async function hostRunFiles(folder: string): Promise<HostRunFiles> {
  const found = new Map<string, string>()
  let root: Confined
  try {
    root = await openConfined(folder)
  } catch (error) {
    if (isGone(error)) return found
    throw error
  }
  let level: readonly string[] = ['']
  let left = MAX_FOLDERS
  for (let depth = 0; depth <= MAX_DEPTH && level.length > 0; depth++) {
    const here = level.slice(0, left)
    left -= here.length
    level = (await Promise.all(here.map((path) => lookInto(root, path, found)))).flat()
  }
  return found
}

/** Names of what is new, or other than before. */
export const changedFiles = (before: HostRunFiles, after: HostRunFiles): readonly string[] =>
  [...after]
    .filter(([path, stamp]) => before.get(path) !== stamp)
    .map(([path]) => path)
    .toSorted()

/** What runs a file of that path. */
export const runnerOf = (path: string): string => WATCHED.find((watched) => watched.path.test(path))?.by ?? 'git'

/** Notes what a folder has of them, and says where to look on. */
async function lookInto(root: Confined, path: string, found: Map<string, string>): Promise<readonly string[]> {
  const entries = await unlessGone(root.list(path === '' ? '.' : path))
  if (entries === undefined) return []
  const at = (name: string): string => (path === '' ? name : `${path}/${name}`)
  if (isGitFolder(entries)) {
    await lookAtGit(root, path, entries, found)
    return entries.filter(({ name, kind }) => name === 'modules' && kind === 'folder').map(({ name }) => at(name))
  }
  for (const entry of entries) {
    if (entry.kind === 'folder' || !WATCHED.some((watched) => watched.path.test(at(entry.name)))) continue
    found.set(at(entry.name), await stampOf(root, at(entry.name), entry))
  }
  return entries
    .filter(
      ({ name, kind }) =>
        kind === 'folder' &&
        name !== 'node_modules' &&
        (name === '.git' || HOLDERS.includes(name) || !name.startsWith('.')),
    )
    .map(({ name }) => at(name))
}

/** As git itself tells one, whatever its name: a `.git` file or a link may lead to it. */
const isGitFolder = (entries: readonly ConfinedEntry[]): boolean =>
  ['HEAD', 'objects', 'refs'].every((name) => entries.some((entry) => entry.name === name))

async function lookAtGit(
  root: Confined,
  path: string,
  entries: readonly ConfinedEntry[],
  found: Map<string, string>,
): Promise<void> {
  const at = (name: string): string => (path === '' ? name : `${path}/${name}`)
  for (const { name, kind } of entries) {
    if (name === 'hooks' && kind === 'link') found.set(at(name), 'link')
    if (name === 'hooks' && kind === 'folder')
      for (const hook of (await unlessGone(root.list(at(name)))) ?? [])
        if (hook.kind !== 'folder' && !hook.name.endsWith('.sample'))
          found.set(at(`hooks/${hook.name}`), await stampOf(root, at(`hooks/${hook.name}`), hook))
    if ((name === 'config' || name === 'config.worktree') && kind === 'file') {
      const text = await unlessGone(root.readText(at(name), { maxBytes: MAX_CONFIG_BYTES }))
      const commands = gitCommands(text ?? '')
      if (commands.length > 0) found.set(at(name), createHash('sha256').update(JSON.stringify(commands)).digest('hex'))
    }
  }
}

/** Lines `key=value` of a git configuration whose value git may run, or that lead to more of them. */
export function gitCommands(text: string): readonly string[] {
  const commands: string[] = []
  let section = ''
  // A line may be continued by a backslash, and a section's first key may stand behind it.
  for (const line of text.replaceAll(/\\\r?\n/g, '').split(/\r?\n/)) {
    let rest = line.trim()
    const header = /^\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]/.exec(rest)
    if (header !== null) {
      section = (header[1] ?? '').toLowerCase() + (header[2] === undefined ? '' : `.${header[2]}`)
      rest = rest.slice(header[0].length).trim()
    }
    const [, key, value = ''] = /^([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$/.exec(rest) ?? []
    if (key === undefined) continue
    const name = `${section}.${key.toLowerCase()}`
    // What git itself writes for its built-in monitor.
    if (name === 'core.fsmonitor' && /^(true|false)$/.test(value)) continue
    if (COMMANDS.test(name)) commands.push(`${name}=${value}`)
  }
  return commands
}

async function stampOf(root: Confined, path: string, entry: ConfinedEntry): Promise<string> {
  if (entry.kind === 'link') return 'link'
  const about = await unlessGone(root.stat(path))
  return about === undefined ? 'gone' : `${about.size} ${about.changedMs}`
}

/** Somebody else may be at work in the folder: what is gone or was swapped meanwhile is not there. */
async function unlessGone<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (isGone(error)) return undefined
    throw error
  }
}

const isGone = (error: unknown): boolean => isReveError(error) || (error instanceof Error && 'code' in error)
