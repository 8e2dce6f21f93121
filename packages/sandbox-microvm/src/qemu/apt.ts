import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { MicroVmError } from '../errors.ts'
import { type HostRun, runHost } from '../host-process.ts'

/** What apt needs of the host. */
export type AptHost = {
  readonly searchPath: readonly string[]
  readonly programEnv: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
}

/** A suite and where it comes from. */
export type AptSource = { readonly uri: string; readonly suite: string }

/** The host's own apt sources, read with fresh package lists. */
export type Apt = {
  run(program: 'apt-get' | 'apt-cache', args: readonly string[], cwd?: string): Promise<HostRun>
  /** Where to build a suite from: the host's Debian mirror, and its security updates when the host has those. */
  mirrorsFor(suite: string): Promise<readonly AptSource[]>
}

/**
 * Apt with lists of our own in `folder`: no root is needed, nothing of the host's state is touched, and lists that are out
 * of date cannot point at packages that are gone.
 */
export async function openApt(folder: string, host: AptHost): Promise<Apt> {
  await mkdir(join(folder, 'lists', 'partial'), { recursive: true })
  await mkdir(join(folder, 'cache', 'archives', 'partial'), { recursive: true })
  const settings = {
    // Downloads go into folders that only the caller may read, so apt may not change to a user of its own.
    'APT::Sandbox::User': 'root',
    'Dir::State::Lists': join(folder, 'lists'),
    'Dir::Cache': join(folder, 'cache'),
    'Acquire::Languages': 'none',
  }
  const base = ['-q', ...Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])]
  const options = {
    searchPath: host.searchPath,
    env: host.programEnv,
    ...(host.signal === undefined ? {} : { signal: host.signal }),
  }
  const run: Apt['run'] = (program, args, cwd) =>
    runHost(program, [...base, ...args], cwd === undefined ? options : { ...options, cwd })
  // Its exit code also tells of repositories that are not ours to need: what is missing shows below.
  const update = await run('apt-get', ['update'])
  return {
    run,
    mirrorsFor: async (suite) => {
      const { stdout } = await run('apt-get', [
        'indextargets',
        '--format',
        '$(CREATED_BY)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)',
      ])
      const sources = chooseMirrors(stdout.toString(), suite)
      if (sources.length > 0) return sources
      const said = update.stderr.trim().split('\n').slice(-3).join(' ')
      throw new MicroVmError(
        'image_failed',
        `apt of this machine reaches no Debian mirror, so there is nothing to build ${suite} from; check /etc/apt/sources.list. ${said}`,
      )
    },
  }
}

/** Debian's releases, as against a repository of somebody else's. */
const releases = /^(bullseye|bookworm|trixie|forky|sid|oldstable|stable|testing|unstable)$/

/** Chooses from the output of `apt-get indextargets`. */
export function chooseMirrors(targets: string, suite: string): readonly AptSource[] {
  const rows = targets.split('\n').map((line) => line.split('|'))
  const uriOf = (matches: (release: string) => boolean): string | undefined =>
    rows.find(
      ([kind, uri, release, component]) =>
        kind === 'Packages' && component === 'main' && uri !== undefined && release !== undefined && matches(release),
    )?.[1]
  const archive = uriOf((release) => releases.test(release))
  if (archive === undefined) return []
  const security = uriOf((release) => release.endsWith('-security'))
  const rolling = suite === 'sid' || suite === 'unstable'
  return [
    { uri: archive, suite },
    ...(security === undefined || rolling ? [] : [{ uri: security, suite: `${suite}-security` }]),
  ]
}
