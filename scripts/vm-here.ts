import { probeBackends } from '@reve/sandbox-microvm'
import { surroundings } from '../apps/reve-cli/src/surroundings.ts'

/** Why no microVM boots on this machine; undefined when one does. For tests, which say it when they skip. */
export async function whyNoVm(): Promise<string | undefined> {
  const backends = await probeBackends(surroundings(process.env))
  return backends.some(({ ok }) => ok)
    ? undefined
    : backends.map(({ backend, reason }) => `${backend}: ${reason}`).join('; ')
}
