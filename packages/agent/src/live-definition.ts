import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isReveError } from '@reve/base'
import type { LuaRuntime } from '@reve/lua-runtime'
import { LIBRARY, loadDefinition, type Definition } from './definition.ts'

/** What a look at the agent's files came to. */
export type Refreshed =
  | { readonly type: 'same' }
  | { readonly type: 'changed' }
  /** They are wrong now; what was good before still counts. Told once for each change. */
  | { readonly type: 'kept'; readonly problem: string }

/** An agent's own files, as they were when they were last right. */
export type LiveDefinition = {
  current(): Definition
  /** Reads what changed on disk since; several at once are one. */
  refresh(): Promise<Refreshed>
  /** Runs `work` on the present Lua state, which stays until it ends. */
  withLua<T>(work: (lua: LuaRuntime) => Promise<T>): Promise<T>
  close(): Promise<void>
}

/**
 * Follows the files of an agent from `first` on.
 *
 * @throws AgentError from `refresh` for a folder that is gone or cannot be read.
 */
export async function liveDefinition(first: Definition): Promise<LiveDefinition> {
  const { root } = first
  let current = first
  let stamp = await stampOf(root)
  let refreshing: Promise<Refreshed> | undefined
  /** Calls under way, by the state they run on; one that is not current is closed with its last call. */
  const calls = new Map<LuaRuntime, number>()

  const refresh = async (): Promise<Refreshed> => {
    // Before the reading: a change in its midst is seen the next time.
    const now = await stampOf(root)
    if (now === stamp) return { type: 'same' }
    stamp = now
    try {
      const next = await loadDefinition(root)
      const old = current.lua
      current = next
      if (!calls.has(old)) await old.close()
      return { type: 'changed' }
    } catch (error) {
      if (isReveError(error) && error.code === 'bad_config') return { type: 'kept', problem: error.message }
      throw error
    }
  }

  return {
    current: () => current,
    refresh: () => {
      refreshing ??= refresh().finally(() => (refreshing = undefined))
      return refreshing
    },
    withLua: async (work) => {
      const { lua } = current
      calls.set(lua, (calls.get(lua) ?? 0) + 1)
      try {
        return await work(lua)
      } finally {
        const left = (calls.get(lua) ?? 1) - 1
        if (left > 0) calls.set(lua, left)
        else {
          calls.delete(lua)
          if (lua !== current.lua) await lua.close()
        }
      }
    },
    close: async () => {
      await Promise.all([...new Set([current.lua, ...calls.keys()])].map((lua) => lua.close()))
    },
  }
}

/** Says whether any of the files that make a definition is another one than before. */
async function stampOf(root: string): Promise<string> {
  const lua = async (folder: string, recursive = false): Promise<readonly string[]> =>
    (await readdir(join(root, folder), { recursive }).catch(() => []))
      .filter((name) => name.endsWith('.lua'))
      .map((name) => join(folder, name))
  const files = [
    'agent.lua',
    'sandbox.lua',
    'instructions.md',
    ...(await lua('tools')),
    ...(await lua(LIBRARY, true)),
    ...(await lua('channels')),
  ]
  const stamps = await Promise.all(
    files.toSorted().map(async (file) => {
      const found = await stat(join(root, file)).catch(() => undefined)
      return found === undefined ? [file] : [file, found.ino, found.size, found.mtimeMs, found.ctimeMs]
    }),
  )
  return JSON.stringify(stamps)
}
