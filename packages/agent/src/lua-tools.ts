import type { Tool } from '@reve/harness'
import type { LuaHostCalls, ToolDeclaration } from '@reve/lua-runtime'
import type { MicroVm } from '@reve/sandbox-microvm'
import { keptBytes } from './guest.ts'
import type { LiveDefinition } from './live-definition.ts'
import { type NetworkNotes, withNetworkNotes } from './network-notes.ts'
import { spill } from './spill.ts'

/** What a Lua tool's `ctx` reaches: commands in the microVM, and nothing else. */
export function luaHostCalls(vm: MicroVm, workdir: string, progress?: (text: string) => void): LuaHostCalls {
  return {
    workdir,
    sh: async (command, signal) => {
      const result = await vm.exec({ argv: ['sh', '-lc', command], signal, maxOutputBytes: keptBytes })
      return { stdout: result.stdout, stderr: result.stderr, exitCode: result.exitCode }
    },
    ...(progress ? { progress } : {}),
  }
}

/** A tool that a `tools/*.lua` file declares, as the harness runs it. */
export function luaTool(
  live: Pick<LiveDefinition, 'withLua'>,
  declaration: ToolDeclaration,
  vm: MicroVm,
  workdir: string,
  network: NetworkNotes,
): Tool {
  return {
    name: declaration.name,
    description: declaration.description,
    parameters: declaration.schema,
    replay: declaration.replay,
    run: async (args, context) => {
      const mark = network.mark()
      const host = luaHostCalls(vm, workdir, (text) => context.progress(text))
      // The file may have changed since the run began: what it says now is what runs.
      const text = await live.withLua((lua) =>
        lua.call(declaration.name, args, host, { signal: context.signal, idempotencyKey: context.idempotencyKey }),
      )
      const result = await spill(vm, text, context.signal)
      return { content: withNetworkNotes(result, network.after(mark, result)) }
    },
  }
}
