import type { LuaValue } from './values.ts'

/*
 * What runtime and worker say to each other. Types only: the worker's module graph must not reach `@reve/base`, because a
 * worker under vitest resolves packages without the `source` condition.
 */

export type FileKind = 'agent' | 'sandbox' | 'tools'

export type WorkerFile = { readonly kind: FileKind; readonly file: string; readonly source: string }

export type WorkerStart = {
  readonly files: readonly WorkerFile[]
  readonly loadCpuMs: number
  readonly memoryBytes: number
  /** Int32Array of two: [stop reason, heartbeat]. */
  readonly shared: SharedArrayBuffer
}

/** Index and values of the shared words. */
export const STOP = 0
export const BEAT = 1
export const stopReason = { none: 0, aborted: 1, wall: 2 } as const

/** A call of `agent`, `sandbox` or `tool`, as the script made it. */
export type RawDeclaration = {
  readonly kind: FileKind
  readonly file: string
  readonly line: number
  /** `tool`: the first argument. */
  readonly name?: LuaValue | undefined
  readonly value?: LuaValue | undefined
  /** `tool`: Lua's type name of the spec's `run`. */
  readonly run: string
  /** Why the value could not leave Lua. */
  readonly problem?: string
}

export type FailureCode = 'lua_syntax' | 'lua_runtime' | 'lua_limit' | 'lua_arguments' | 'lua_aborted'

/** A failure in Lua's own words; the runtime finds file and line in it. */
export type Failure = {
  readonly code: FailureCode
  readonly text: string
  readonly traceback: string
  readonly spoiled: boolean
}

export type ToWorker =
  | {
      readonly type: 'call'
      readonly tool: string
      readonly args: LuaValue
      readonly workdir: string
      readonly key: string | undefined
      readonly cpuMs: number
    }
  | { readonly type: 'reply'; readonly ok: true; readonly value: string | Uint8Array }
  | { readonly type: 'reply'; readonly ok: false; readonly message: string }

export type FromWorker =
  | { readonly type: 'loading'; readonly file: string }
  | {
      readonly type: 'loaded'
      readonly declarations: readonly RawDeclaration[]
      readonly failures: readonly (Failure & { readonly file: string })[]
    }
  | { readonly type: 'sh'; readonly command: string }
  | { readonly type: 'emit'; readonly kind: 'print' | 'progress'; readonly text: string }
  | { readonly type: 'done'; readonly text: string }
  | { readonly type: 'failed'; readonly failure: Failure }
  | { readonly type: 'broken'; readonly message: string }
