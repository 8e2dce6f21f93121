import { MicroVmError } from './errors.ts'
import { DEFAULT_SEARCH_PATH, findProgram, HOST_PROGRAMS, type HostProgram } from './host-process.ts'
import type { MicroVmHost } from './spec.ts'

/** Debian's package of each program, and when it is needed. */
const PACKAGES: readonly {
  readonly program: HostProgram
  readonly debian: string
  readonly brew?: string
  readonly when: MissingProgram['when']
}[] = [
  { program: 'qemu-system-x86_64', debian: 'qemu-system-x86', brew: 'qemu', when: 'run' },
  { program: 'qemu-img', debian: 'qemu-utils', brew: 'qemu', when: 'build' },
  { program: 'bwrap', debian: 'bubblewrap', when: 'wanted' },
  { program: 'mmdebstrap', debian: 'mmdebstrap', when: 'build' },
  { program: 'unshare', debian: 'util-linux', when: 'build' },
  { program: 'mke2fs', debian: 'e2fsprogs', when: 'build' },
  { program: 'apt-get', debian: 'apt', when: 'build' },
  { program: 'apt-cache', debian: 'apt', when: 'build' },
  { program: 'dpkg-deb', debian: 'dpkg', when: 'build' },
  { program: 'xz', debian: 'xz-utils', when: 'build' },
]

/** mmdebstrap needs this to make users of a sub-range when it is not run by root. */
const UIDMAP: { readonly program: 'newuidmap'; readonly debian: string; readonly reason: string } = {
  program: 'newuidmap',
  debian: 'uidmap',
  reason: 'lets mmdebstrap work without root',
}

/** The machine that is asked about; a test gives another. */
export type Machine = { readonly platform: string; readonly arch: string; readonly isRoot: boolean }

/** A program that this machine lacks. */
export type MissingProgram = {
  readonly program: string
  /** The package that has it. */
  readonly package: string
  /** What it is for. */
  readonly reason: string
  /** `run`: no VM without it; `build`: no new image or disk without it; `wanted`: works without, less well kept in. */
  readonly when: 'run' | 'build' | 'wanted'
}

const thisMachine = (): Machine => ({
  platform: process.platform,
  arch: process.arch,
  isRoot: process.getuid?.() === 0,
})

/**
 * What this machine lacks to build and run a VM, and the one command that installs it (empty when nothing is missing or
 * nothing would help).
 */
export async function hostPackages(
  host: Pick<MicroVmHost, 'searchPath'> = {},
  machine: Machine = thisMachine(),
): Promise<{ readonly missing: readonly MissingProgram[]; readonly command: string }> {
  return missingPackages(host.searchPath ?? DEFAULT_SEARCH_PATH, machine)
}

function missingPackages(
  searchPath: readonly string[],
  machine: Machine,
): { readonly missing: readonly MissingProgram[]; readonly command: string } {
  const mac = machine.platform === 'darwin'
  const missing: MissingProgram[] = PACKAGES.filter(({ brew }) => !mac || brew !== undefined)
    .filter(({ program }) => findProgram(program, searchPath) === undefined)
    .map(({ program, debian, when }) => ({
      program,
      package: mac ? 'qemu' : debian,
      reason: HOST_PROGRAMS[program],
      when,
    }))
  if (!mac && !machine.isRoot && findProgram(UIDMAP.program, searchPath) === undefined)
    missing.push({ program: UIDMAP.program, package: UIDMAP.debian, reason: UIDMAP.reason, when: 'build' })
  if (missing.length === 0) return { missing, command: '' }
  const names = [...new Set(missing.map((entry) => entry.package))].join(' ')
  const install = `apt-get install -y --no-install-recommends ${names}`
  return { missing, command: mac ? `brew install ${names}` : machine.isRoot ? install : `sudo ${install}` }
}

/**
 * Makes sure that a VM can run here, and for `build` (the default) that its image and disk can be made.
 *
 * @throws MicroVmError `unsupported_host`; `missing_program` with the command that installs all that is missing.
 */
export function requireHost(
  host: Pick<MicroVmHost, 'searchPath'>,
  purpose: 'run' | 'build' = 'build',
  machine: Machine = thisMachine(),
): void {
  if (machine.platform !== 'linux' || machine.arch !== 'x64')
    throw new MicroVmError(
      'unsupported_host',
      `this is ${machine.platform} on ${machine.arch}; this version's guests run on Linux on x64 (amd64), so start this in a Linux machine`,
    )
  const { missing, command } = missingPackages(host.searchPath ?? DEFAULT_SEARCH_PATH, machine)
  const needed = missing.filter(({ when }) => when === 'run' || (purpose === 'build' && when === 'build'))
  if (needed.length === 0) return
  const list = needed.map(({ program, reason }) => `${program} (${reason})`).join(', ')
  throw new MicroVmError(
    'missing_program',
    `no VM can be ${purpose === 'run' ? 'run' : 'made'} here without ${list}. Install it with: ${command}`,
    { hint: command },
  )
}
