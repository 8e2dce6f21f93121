import { loadDefinition } from '@reve/agent/folder'
import type { Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'

/** `reve info` */
export async function info(context: Context, options: { readonly json: boolean }): Promise<number> {
  // What the files say, without what a run needs.
  const { root, model, thinking, policy, mcp: servers, lua } = await loadDefinition(context.folder)
  await using _closed = lua
  const tools = lua.program.tools.map(({ name, description }) => ({ name, description }))
  const mcp = Object.keys(servers ?? {}).toSorted()
  if (options.json) {
    const { secrets, ...rest } = policy
    context.output.result(
      JSON.stringify({
        root,
        model,
        thinking,
        sandbox: { ...rest, secrets: secrets.map(({ env, hosts }) => ({ env, hosts })) },
        tools,
        mcp,
      }),
    )
    return exitCode.done
  }
  const rows: readonly (readonly [string, string])[] = [
    ['root', root],
    ['model', model ?? '(unset)'],
    ['thinking', String(thinking ?? '(default)')],
    ['sandbox', `${policy.image} (${policy.cpus} cpu, ${policy.memory}MB)`],
    ['egress', policy.allow.join(', ') || '(none)'],
    ['tools', tools.map(({ name }) => name).join(', ') || '(none)'],
    ...(mcp.length === 0 ? [] : [['mcp', mcp.join(', ')] as const]),
  ]
  context.output.result(rows.map(([label, value]) => `${label.padEnd(10)}${value}`).join('\n'))
  return exitCode.done
}
