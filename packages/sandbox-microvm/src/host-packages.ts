import { MicroVmError } from './errors.ts'
import { DEFAULT_SEARCH_PATH, findProgram, HOST_PROGRAMS, type HostProgram } from './host-process.ts'
import type { MicroVmHost } from './spec.ts'

/** What a VM is made of; each piece needs programs of this machine, and none once it is in the cache. */
export type Purpose = 'run' | 'kernel' | 'image'

/** Debian's package of each program, and what needs it. */
const PACKAGES: readonly {
  readonly program: HostProgram
  readonly debian: string
  readonly brew?: string
  readonly for: readonly Purpose[]
}[] = [
  { program: 'qemu-system-x86_64', debian: 'qemu-system-x86', brew: 'qemu', for: ['run'] },
  { program: 'bwrap', debian: 'bubblewrap', for: [] },
  { program: 'mmdebstrap', debian: 'mmdebstrap', for: ['image'] },
  { program: 'unshare', debian: 'util-linux', for: ['image'] },
  { program: 'mke2fs', debian: 'e2fsprogs', for: ['image'] },
  { program: 'apt-get', debian: 'apt', for: ['image', 'kernel'] },
  { program: 'apt-cache', debian: 'apt', for: ['image', 'kernel'] },
  { program: 'dpkg-deb', debian: 'dpkg', for: ['kernel'] },
  { program: 'xz', debian: 'xz-utils', for: ['kernel'] },
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
  /** `run`: no VM without it; `build`: no kernel, or no image from packages, without it; `wanted`: works without, less well kept in. */
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
    .map((entry) => ({
      program: entry.program,
      package: mac ? 'qemu' : entry.debian,
      reason: HOST_PROGRAMS[entry.program],
      when: whenOf(entry.for),
    }))
  if (!mac && !machine.isRoot && findProgram(UIDMAP.program, searchPath) === undefined)
    missing.push({ program: UIDMAP.program, package: UIDMAP.debian, reason: UIDMAP.reason, when: 'build' })
  if (missing.length === 0) return { missing, command: '' }
  const names = [...new Set(missing.map((entry) => entry.package))].join(' ')
  const install = `apt-get install -y --no-install-recommends ${names}`
  return { missing, command: mac ? `brew install ${names}` : machine.isRoot ? install : `sudo ${install}` }
}

const whenOf = (purposes: readonly Purpose[]): MissingProgram['when'] =>
  purposes.length === 0 ? 'wanted' : purposes.includes('run') ? 'run' : 'build'

const isFor = (purpose: Purpose, program: string): boolean =>
  (program === UIDMAP.program && purpose === 'image') ||
  PACKAGES.some((entry) => entry.program === program && entry.for.includes(purpose))

/** Programs that this machine lacks for one purpose. */
export const missingFor = (
  purpose: Purpose,
  host: Pick<MicroVmHost, 'searchPath'>,
  machine: Machine = thisMachine(),
): readonly MissingProgram[] =>
  missingPackages(host.searchPath ?? DEFAULT_SEARCH_PATH, machine).missing.filter(({ program }) =>
    isFor(purpose, program),
  )

const DOING = {
  run: 'no VM of QEMU can be run',
  kernel: 'no kernel can be prepared',
  image: 'no image can be built from packages',
} as const

/**
 * Makes sure that QEMU can run a VM here, that its kernel can be prepared, or that an image can be built from packages.
 *
 * @throws MicroVmError `unsupported_host`; `missing_program` with the command that installs all that is missing.
 */
export function requireHost(
  host: Pick<MicroVmHost, 'searchPath'>,
  purpose: Purpose,
  machine: Machine = thisMachine(),
): void {
  if (machine.platform !== 'linux' || machine.arch !== 'x64')
    throw new MicroVmError(
      'unsupported_host',
      `this is ${machine.platform} on ${machine.arch}; this version's guests run on Linux on x64 (amd64), so start this in a Linux machine`,
    )
  const needed = missingFor(purpose, host, machine)
  if (needed.length === 0) return
  const { command } = missingPackages(host.searchPath ?? DEFAULT_SEARCH_PATH, machine)
  const list = needed.map(({ program, reason }) => `${program} (${reason})`).join(', ')
  throw new MicroVmError('missing_program', `${DOING[purpose]} here without ${list}. Install it with: ${command}`, {
    hint: command,
  })
}
