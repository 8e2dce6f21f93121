import type { Tool } from '@reve/harness'
import type { ToolDeclaration } from '@reve/lua-runtime'
import type { MicroVm } from '@reve/sandbox-microvm'
import type { LiveDefinition } from './live-definition.ts'
import { luaHost } from './lua-host.ts'
import { type NetworkNotes, withNetworkNotes } from './network-notes.ts'
import { spill } from './spill.ts'

/** A tool that a `tools/*.lua` file declares, as the harness runs it. */
export function luaTool(
  live: Pick<LiveDefinition, 'withLua'>,
  declaration: ToolDeclaration,
  vm: MicroVm,
  workdir: string,
  network: NetworkNotes,
  log?: (text: string) => void,
): Tool {
  return {
    name: declaration.name,
    description: declaration.description,
    parameters: declaration.schema,
    replay: declaration.replay,
    run: async (args, context) => {
      const mark = network.mark()
      const host = luaHost(vm, workdir, { progress: (text) => context.progress(text), ...(log && { log }) })
      // The file may have changed since the run began: what it says now is what runs.
      const text = await live.withLua((lua) =>
        lua.call(declaration.name, args, host, { signal: context.signal, idempotencyKey: context.idempotencyKey }),
      )
      const result = await spill(vm, text, context.signal)
      return { content: withNetworkNotes(result, network.after(mark, result)) }
    },
  }
}
