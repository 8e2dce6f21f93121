import { openAgent, type Agent } from '@reve/agent'
import { isReveError, messageOf, sanitiseTerminal } from '@reve/base'
import { hostPackages, probeBackends } from '@reve/sandbox-microvm'
import type { Context } from '../context.ts'
import { exitCode, exitCodeOf } from '../exit-codes.ts'
import * as look from '../findings.ts'
import type { Finding } from '../findings.ts'
import { modelsHere } from '../models-here.ts'
import { paint } from '../output.ts'
import { surroundings, vmHost, type Surroundings } from '../surroundings.ts'
import { vmProgress } from '../vm-progress.ts'

const marks = { ok: '✓', note: '!', bad: '✗' } as const

/** `reve doctor` */
export async function doctor(context: Context, options: { readonly json: boolean }): Promise<number> {
  const { output, env, signal } = context
  const around = surroundings(env)
  const host = vmHost(around, vmProgress(output))
  const findings: Finding[] = [
    { subject: 'node', state: 'ok', text: `${process.versions.node} on ${process.platform}-${process.arch}` },
  ]
  const { missing, command } = await hostPackages(host)
  findings.push(look.programs(missing, command), await look.kvm())
  const backends = await probeBackends(host, { signal })
  findings.push(...backends.map(look.backend), await look.disk('images', around.cacheDir))
  const boots = backends.some(({ ok }) => ok)
  const ofAgent = await agentFindings(context, around)
  findings.push(...ofAgent.findings)

  output.result(options.json ? JSON.stringify(findings) : findings.map(lineOf).join('\n'))
  if (boots) return ofAgent.code
  output.note(
    paint('red', 'reve: '),
    'no microVM can boot here, so no agent can work here; the lines above say what is missing',
  )
  return exitCode.noVm
}

function lineOf({ subject, state, text }: Finding): string {
  return `${marks[state]} ${subject.padEnd(14)}${sanitiseTerminal(text).replaceAll('\n', `\n${' '.repeat(16)}`)}`
}

type Looked = { readonly findings: readonly Finding[]; readonly code: number }

async function agentFindings({ folder, env, signal }: Context, around: Surroundings): Promise<Looked> {
  try {
    await using agent = await openAgent(folder, { env: around.env, vm: vmHost(around) })
    const { root, model, policy } = agent.info
    const asked = await modelFinding(agent)
    const findings: readonly Finding[] = [
      { subject: 'agent', state: 'ok', text: `${root}, model ${model ?? '(unset)'}, sandbox ${policy.image}` },
      ...asked.findings,
      // A file that is wrong as a whole is what `model` said.
      ...(await modelsHere({ folder, env }).then(look.providers, unlessRefused)),
      ...look.secrets(policy, around.env),
      await look.image(policy, around.cacheDir),
      await look.disk('the agent', root),
      ...(await look.skills(agent)),
      ...(await look.mcpServers(agent, signal)),
      ...(await look.heartbeats(root)),
      ...(await look.sessions(root)),
    ]
    return { findings, code: asked.code }
  } catch (error) {
    if (!isReveError(error)) throw error
    if (error.code === 'not_an_agent')
      return { findings: [{ subject: 'agent', state: 'note', text: messageOf(error) }], code: exitCode.done }
    return { findings: [{ subject: 'agent', state: 'bad', text: messageOf(error) }], code: exitCodeOf(error) }
  }
}

async function modelFinding(agent: Agent): Promise<Looked> {
  try {
    await agent.checkModel()
    return {
      findings: [{ subject: 'model', state: 'ok', text: `${agent.info.model} can be asked` }],
      code: exitCode.done,
    }
  } catch (error) {
    return { findings: [{ subject: 'model', state: 'bad', text: messageOf(error) }], code: exitCodeOf(error) }
  }
}

function unlessRefused(error: unknown): readonly Finding[] {
  if (isReveError(error) || (error instanceof Error && 'code' in error)) return []
  throw error
}
