import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '@reve/base'
import * as v from 'valibot'
import { MicroVmError } from '../errors.ts'
import type { Progress } from '../progress.ts'
import { whyNoKvm } from '../qemu/accelerator.ts'
import { remembered } from '../remembered.ts'
import type { MicroVmHost } from '../spec.ts'
import { startDriver } from './driver-process.ts'
import { homeOf } from './home.ts'
import { findSdk, type SdkPlace } from './sdk.ts'

/** Whether microsandbox boots here, and why or why not. */
export type MicrosandboxReport = { readonly ok: boolean; readonly reason: string }

const Report = v.strictObject({ ok: v.boolean(), reason: v.string() })

/** Where a machine's KVM is there and does not work, the SDK gives up after half a minute; nested in emulation it takes this long. */
const TRIAL_MS = 120_000

/** What can be said without a boot: undefined when only a boot can tell. */
export async function whyNoMicrosandbox(place?: SdkPlace): Promise<string | undefined> {
  const sdk = findSdk(place)
  return sdk.ok ? whyNoKvm() : sdk.why
}

/** Boots the smallest VM there is, over an empty folder; the result is remembered for this host until it boots again. */
export async function probeMicrosandbox(
  host: MicroVmHost,
  options: { readonly progress: Progress; readonly signal?: AbortSignal },
): Promise<MicrosandboxReport> {
  const sdk = findSdk()
  if (!sdk.ok) return { ok: false, reason: sdk.why }
  const impossible = await whyNoKvm()
  if (impossible !== undefined) return { ok: false, reason: impossible }
  return remembered({
    cacheDir: host.cacheDir,
    key: ['microsandbox', sdk.version],
    schema: Report,
    find: () =>
      options.progress.stage('accelerator', 'try microsandbox', () => tryBoot(host, sdk.version, options.signal)),
  })
}

async function tryBoot(
  host: MicroVmHost,
  version: string,
  signal: AbortSignal | undefined,
): Promise<MicrosandboxReport> {
  const home = homeOf(join(host.cacheDir, `probe-${process.pid}`), host)
  const root = join(home, 'root')
  // What a guest's system looks for before it serves.
  for (const folder of ['dev', 'etc', 'proc', 'sys', 'tmp'])
    await mkdir(join(root, folder), { recursive: true, mode: 0o700 })
  await writeFile(join(root, 'etc', 'passwd'), 'root:x:0:0::/:/none\n')
  const driver = await startDriver({
    home,
    onEnded: () => undefined,
    ...(host.searchPath === undefined ? {} : { searchPath: host.searchPath }),
  })
  const onAbort = (): void => driver.kill()
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    if (signal?.aborted === true) onAbort()
    await driver.request({ type: 'try', name: 'probe', root }, TRIAL_MS)
    return { ok: true, reason: `microsandbox ${version}: a trial boot came up` }
  } catch (error) {
    if (signal?.aborted === true) throw new MicroVmError('aborted', 'the start was cancelled')
    return { ok: false, reason: `a trial boot failed: ${messageOf(error)}` }
  } finally {
    signal?.removeEventListener('abort', onAbort)
    driver.kill()
    await driver.closed
    await rm(home, { recursive: true, force: true })
  }
}
