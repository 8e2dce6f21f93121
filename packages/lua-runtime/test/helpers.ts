import { loadLua, LuaError, type LuaHostCalls, type LuaOptions, type LuaRuntime, type ShResult } from '../src/index.ts'

export const ok = (stdout: string | Uint8Array, stderr: string | Uint8Array = ''): ShResult => ({
  stdout,
  stderr,
  exitCode: 0,
})

/** A host whose `sh` answers what `answer` makes of the command. */
export function host(
  answer: (command: string, signal: AbortSignal) => ShResult | Promise<ShResult> = (command) => ok(command),
): LuaHostCalls {
  return { workdir: '/workspace', sh: async (command, signal) => await answer(command, signal) }
}

/** Loads one tools file, closed at the end of the test by `await using`. */
export async function tools(source: string, options?: LuaOptions): Promise<LuaRuntime> {
  return await loadLua({ tools: [{ file: 'tools/t.lua', source }] }, options)
}

/** A tool named `t` with that body. */
export async function body(lua: string, options?: LuaOptions): Promise<LuaRuntime> {
  return await tools(`tool("t", { description = "d", run = function(args, ctx)\n${lua}\nend })`, options)
}

/** The LuaError that the promise is rejected with. */
export async function failure(promise: Promise<unknown>): Promise<LuaError> {
  try {
    await promise
  } catch (error) {
    if (error instanceof LuaError) return error
    throw error
  }
  throw new Error('expected a LuaError')
}
