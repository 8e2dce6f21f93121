import { sanitiseLine } from '@reve/base'
import type { RunningVm } from './backend.ts'
import { MicroVmError } from './errors.ts'
import type { GuestCommand } from './execution.ts'
import { INSTALL_HINT, installScript } from './images/provision.ts'
import type { Progress } from './progress.ts'
import type { ExecRequest, ExecResult, MicroVmSpec } from './spec.ts'

/** Installing packages takes no longer than this. */
const PROVISION_MS = 900_000

type NewDisk = {
  readonly spec: MicroVmSpec
  readonly progress: Progress
  /** A command in the environment of the VM, that ends with the start. */
  readonly command: (request: ExecRequest) => GuestCommand
}

/**
 * What a new disk gets before it is used: packages that its image lacks, then the commands of `bootstrap`.
 *
 * @throws MicroVmError `image_failed`, `bootstrap_failed`, `aborted`.
 */
export async function makeReady(vm: RunningVm, disk: NewDisk): Promise<void> {
  await installPackages(vm, disk)
  await bootstrap(vm, disk)
}

/** Packages on an image that was not built with them. */
async function installPackages(vm: RunningVm, { spec, progress, command }: NewDisk): Promise<void> {
  const { missing = [] } = vm
  if (missing.length === 0) return
  await progress.stage('image', `install ${missing.length} packages`, async () => {
    const result = await vm.exec(
      command({ argv: ['sh', '-c', installScript(missing)], cwd: '/', timeoutMs: PROVISION_MS }),
    )
    if (result.cancelled) throw startAborted()
    if (result.exitCode !== 0)
      throw new MicroVmError(
        'image_failed',
        `${missing.join(', ')} could not be installed in "${spec.image.ref}" (${result.exitCode}): ${lastLines(result)}. No disk was kept; ${INSTALL_HINT}`,
      )
  })
}

async function bootstrap(vm: RunningVm, { spec, progress, command }: NewDisk): Promise<void> {
  for (const [index, line] of spec.bootstrap.entries()) {
    const label = `bootstrap ${index + 1}/${spec.bootstrap.length}: ${sanitiseLine(line.split('\n')[0] ?? '', 80)}`
    await progress.stage('bootstrap', label, async () => {
      const result = await vm.exec(command({ argv: ['sh', '-lc', line] }))
      if (result.cancelled) throw startAborted()
      if (result.exitCode !== 0)
        throw new MicroVmError(
          'bootstrap_failed',
          `${label} ended with ${result.exitCode}: ${lastLines(result)}. Correct it in sandbox.lua; no disk was kept`,
        )
    })
  }
}

/** Whoever wanted the VM has had enough. */
export const startAborted = (): MicroVmError => new MicroVmError('aborted', 'the start was cancelled')

/** What a command that failed said last, as one line. */
export function lastLines(result: ExecResult): string {
  const text = new TextDecoder().decode(result.stderrBytes > 0 ? result.stderr : result.stdout)
  return text
    .trim()
    .split('\n')
    .slice(-3)
    .map((line) => sanitiseLine(line, 200))
    .join(' | ')
}
