import { agentHere, type Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'

/** `reve info` */
export async function info(context: Context, options: { readonly json: boolean }): Promise<number> {
  await using agent = await agentHere(context)
  const { root, model, thinking, policy, tools, mcp } = agent.info
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
