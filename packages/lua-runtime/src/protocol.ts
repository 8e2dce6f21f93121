import type { LuaValue } from './values.ts'

/*
 * What runtime and worker say to each other. Types only: the worker's module graph must not reach `@reve/base`, because a
 * worker under vitest resolves packages without the `source` condition.
 */

/** `lib` files are what others `require`; they declare nothing. */
export type FileKind = 'agent' | 'sandbox' | 'tools' | 'channels' | 'lib'

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

/** What a file may call while it is loaded. */
export type Callee = 'agent' | 'sandbox' | 'tool' | 'on' | 'command' | 'channel'

/** A call of one of them, as the script made it. */
export type RawDeclaration = {
  readonly callee: Callee
  readonly file: string
  readonly line: number
  /** The first of two arguments. */
  readonly name?: LuaValue | undefined
  /** The last argument, without its functions. */
  readonly value?: LuaValue | undefined
  /** Lua's type names of the functions that were asked for, by their key; of `on` its second argument, as `run`. */
  readonly functions: Readonly<Record<string, string>>
  /** Why the value could not leave Lua. */
  readonly problem?: string
}

/** A body that a file declared. */
export type Body =
  | { readonly type: 'tool' | 'command' | 'poll' | 'reply'; readonly name: string }
  /** The place of the hook among all that were declared. */
  | { readonly type: 'hook'; readonly name: number }

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
      readonly body: Body
      readonly args: LuaValue
      /** What of the host `ctx` has beside what every `ctx` has. */
      readonly functions: readonly string[]
      /** What leaves Lua: the text of a tool's result, or the value itself. */
      readonly gives: 'text' | 'value'
      readonly workdir: string
      readonly key: string | undefined
      readonly cpuMs: number
    }
  | { readonly type: 'reply'; readonly ok: true; readonly value: LuaValue | undefined }
  | { readonly type: 'reply'; readonly ok: false; readonly message: string }

/** What a script says without waiting for anything. */
export type EmitKind = 'print' | 'progress' | 'log'

export type FromWorker =
  | { readonly type: 'loading'; readonly file: string }
  | {
      readonly type: 'loaded'
      readonly declarations: readonly RawDeclaration[]
      readonly failures: readonly (Failure & { readonly file: string })[]
    }
  | { readonly type: 'ask'; readonly asked: string; readonly args: readonly LuaValue[] }
  | { readonly type: 'emit'; readonly kind: EmitKind; readonly text: string }
  | { readonly type: 'done'; readonly value: LuaValue | undefined }
  | { readonly type: 'failed'; readonly failure: Failure }
  | { readonly type: 'broken'; readonly message: string }
