import { StoreError } from './errors.ts'

/**
 * Names inside the store are strings of bytes: one character of code 0 to 255 for each byte ("latin1"). Comparing two of them
 * as JavaScript strings is comparing their bytes.
 */
export type ByteName = string

/** Longest name that the format takes, in bytes. */
export const maxNameBytes = 4095

// Code points that HFS+ leaves out when it compares names, as the bytes of their UTF-8 form.
const hfsIgnorable = /\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf/g

/**
 * Why a name may not stand in a tree, or undefined when it may. Refused: empty, `.`, `..`, `/`, NUL, and `.git` as any file
 * system might read it: case, code points that HFS+ ignores, NTFS short names, streams and trailing dots or spaces.
 */
export function nameFault(name: ByteName): string | undefined {
  if (name === '') return 'is empty'
  if (name === '.' || name === '..') return 'is . or ..'
  if (name.length > maxNameBytes) return `is longer than ${maxNameBytes} bytes`
  if (name.includes('/')) return 'holds a slash'
  if (name.includes('\0')) return 'holds a NUL byte'
  // Most names have none of these: the two folds below cannot matter for them.
  if (!/[.~\xe2\xef]/.test(name)) return undefined
  const folded = name.replace(hfsIgnorable, '')
  if (folded === '' || folded === '.' || folded === '..')
    return 'is . or .. to a file system that ignores some code points'
  for (const spelling of folded === name ? [name] : [name, folded]) {
    // A backslash parts names on Windows, and what follows a colon names a stream of the same file.
    for (const part of spelling.split('\\')) {
      const file = part.split(':', 1)[0] ?? ''
      if (/^(?:\.git|git~1)[ .]*$/i.test(file)) return 'is a spelling of .git'
      if (file !== spelling && /^\.\.?[ .]*$/.test(file)) return 'is a spelling of . or ..'
      if (/^\.\.? [ .]*$/.test(file)) return 'is a spelling of . or ..'
    }
  }
  return undefined
}

/** Whether a name is `.git` in any spelling: the one fault that capture meets in honest folders. */
export const isDotGit = (name: ByteName): boolean => nameFault(name) === 'is a spelling of .git'

const refFault = (name: string): string | undefined => {
  if (name === '') return 'it is empty'
  if (Buffer.byteLength(name) > 255) return 'it is longer than 255 bytes'
  if (/^[0-9a-f]{64}$/.test(name)) return 'it has the form of a tree id'
  if (name.startsWith('-')) return 'it starts with -'
  if (name === '@') return '@ alone means something else in git'
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  if (/[\x00-\x20\x7f~^:?*[\\]/.test(name)) return 'it holds a space, a control character or one of ~ ^ : ? * [ \\'
  if (!name.isWellFormed()) return 'it is not well-formed text'
  if (name.includes('..')) return 'it holds ..'
  if (name.includes('@{')) return 'it holds @{'
  if (name.endsWith('.')) return 'it ends with a dot'
  for (const part of name.split('/')) {
    if (part === '') return 'a part between slashes is empty'
    if (part.startsWith('.')) return 'a part starts with a dot'
    if (part.endsWith('.lock')) return 'a part ends with .lock'
  }
  return undefined
}

/** Refuses what `git check-ref-format` refuses, a leading `-`, and names that read like a tree id. */
export function checkRefName(name: string): void {
  const fault = refFault(name)
  if (fault === undefined) return
  throw new StoreError('bad_name', `${JSON.stringify(name)} cannot name a ref: ${fault}`, {
    path: name,
    hint: 'use letters, digits, . _ - and / between parts, for example "feature/login"',
  })
}

/** Refuses an empty or too long name of a snapshot; it follows the rules of refs. */
export function checkSnapshotName(name: string): void {
  const fault = refFault(name)
  if (fault === undefined) return
  throw new StoreError('bad_name', `${JSON.stringify(name)} cannot name a snapshot: ${fault}`, { path: name })
}
