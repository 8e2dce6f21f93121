/** BLAKE3-256 as 64 lowercase hex digits. */
export type Hash = string

/** Id of a blob: plain BLAKE3-256 of its bytes. */
export type BlobId = Hash

/** Id of a tree: keyed BLAKE3-256 of its canonical encoding (docs/store-format.md), so that no blob can have it. */
export type TreeId = Hash

/**
 * What a name in a directory is. `file` and `executable` name a blob; `symlink` names a blob that holds the target's
 * bytes; `directory` names a tree; `gitlink` carries a commit id of another repository (40 or 64 hex digits) and no
 * content.
 */
export type EntryKind = 'file' | 'executable' | 'symlink' | 'directory' | 'gitlink'

/** What stands at one path. */
export type Target = {
  readonly kind: EntryKind
  /** Blob id, tree id, or for a gitlink the commit id as it is. */
  readonly id: Hash
}

/** One name of a directory. Names are bytes and are never normalised. */
export type TreeEntry = Target & { readonly name: Uint8Array }

/**
 * A path at the face: `/` between names, none at the start, `''` for the root. Bytes that are not UTF-8 and control
 * characters stand as `\xHH`, a backslash as `\\`; `encodePath` and `decodePath` translate.
 */
export type StorePath = string

/** Where a ref points. `rev` rises by one with each move and never restarts, not even when a name is discarded and made again. */
export type RefState = { readonly name: string; readonly tree: TreeId; readonly rev: number }

/** One line of a ref's history. `from` is null when the move made the ref, `to` when it discarded it. */
export type RefMove = {
  readonly rev: number
  /** Who moved it: an opaque string of the caller's. */
  readonly actor: string
  /** ISO time. */
  readonly at: string
  readonly from: TreeId | null
  readonly to: TreeId | null
  readonly note: string | null
}

/** Who acts, and why, for the history. */
export type Act = { readonly actor: string; readonly note?: string | undefined }

/** A change of one path for `editTree`. Setting makes the parents; a directory entry brings its whole subtree. */
export type Edit =
  | { readonly path: StorePath; readonly set: Target }
  | { readonly path: StorePath; readonly remove: true }

/** A path that two trees do not have alike. Directories appear only where they are empty. */
export type TreeChange = {
  readonly path: StorePath
  readonly before: Target | null
  readonly after: Target | null
}

/** One thing met by `walk`, parents before children. */
export type Walked = Target & { readonly path: StorePath }
