import { openAgent } from '@reve/agent'
import { isReveError, messageOf } from '@reve/base'
import { hostPackages, probeBackends } from '@reve/sandbox-microvm'
import type { Context } from '../context.ts'
import { exitCode, exitCodeOf } from '../exit-codes.ts'
import { paint } from '../output.ts'
import { surroundings, vmHost } from '../surroundings.ts'
import { vmProgress } from '../vm-progress.ts'

type Finding = { readonly subject: string; readonly ok: boolean; readonly text: string }

/** `reve doctor` */
export async function doctor(context: Context, options: { readonly json: boolean }): Promise<number> {
  const { output, env, folder, signal } = context
  const around = surroundings(env)
  const host = vmHost(around, vmProgress(output))
  const findings: Finding[] = [
    { subject: 'node', ok: true, text: `${process.versions.node} on ${process.platform}-${process.arch}` },
  ]

  const { missing, command } = await hostPackages(host)
  findings.push(
    missing.length === 0
      ? { subject: 'programs', ok: true, text: 'all there' }
      : {
          subject: 'programs',
          ok: false,
          text: `missing: ${missing.map(({ program }) => program).join(', ')}; get them with: ${command}`,
        },
  )
  const backends = await probeBackends(host, { signal })
  for (const { backend, ok, accelerator, reason } of backends) {
    findings.push({ subject: backend, ok, text: ok ? `boots, ${accelerator ?? 'no accelerator'}: ${reason}` : reason })
  }
  let agentCode: number = exitCode.done
  try {
    await using agent = await openAgent(folder, { env: around.env, vm: host })
    const { model, policy } = agent.info
    findings.push({
      subject: 'agent',
      ok: true,
      text: `${agent.info.root}, model ${model ?? '(unset)'}, sandbox ${policy.image}`,
    })
    findings.push(
      await agent.checkModel().then(
        () => ({ subject: 'model', ok: true, text: `${model} can be asked` }),
        (error: unknown) => {
          agentCode = exitCodeOf(error)
          return { subject: 'model', ok: false, text: messageOf(error) }
        },
      ),
    )
    for (const { source, hosts } of policy.secrets) {
      const set = (around.env(source) ?? '') !== ''
      findings.push({
        subject: 'secret',
        ok: true,
        text: `${source} is ${set ? 'set' : 'not set'} (for ${hosts.join(', ')})`,
      })
    }
  } catch (error) {
    if (!isReveError(error)) throw error
    const elsewhere = error.code === 'not_an_agent'
    findings.push({ subject: 'agent', ok: elsewhere, text: messageOf(error) })
    if (!elsewhere) agentCode = exitCodeOf(error)
  }

  output.result(
    options.json
      ? JSON.stringify(findings)
      : findings.map(({ subject, ok, text }) => `${ok ? '✓' : '✗'} ${subject.padEnd(14)}${text}`).join('\n'),
  )
  if (backends.some(({ ok }) => ok)) return agentCode
  output.note(
    paint('red', 'reve: '),
    'no microVM can boot here, so no agent can work here; the lines above say what is missing',
  )
  return exitCode.noVm
}
