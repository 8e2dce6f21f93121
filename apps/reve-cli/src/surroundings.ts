import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { delimiter, isAbsolute, join } from 'node:path'
import type { MachineHosts } from '@reve/agent'
import type { MicroVmHost } from '@reve/sandbox-microvm'
import { npmRegistry } from './host-process.ts'
import { authFiles, registryCredentials } from './registry-credentials.ts'

/** Where this machine keeps what is ours outside of an agent's folder; the only place that reads environment and home. */
export type Surroundings = {
  readonly env: (name: string) => string | undefined
  /** Rebuildable things: images, kernels, what was found out about this host. */
  readonly cacheDir: string
  /** Sockets; short, since a socket's path is limited to about 100 bytes. */
  readonly runtimeDir: string
  /** Folders in which QEMU and its helpers are looked for, when `REVE_PROGRAM_PATH` names them. */
  readonly searchPath?: readonly string[]
}

export function surroundings(env: NodeJS.ProcessEnv): Surroundings {
  const value = (name: string): string | undefined => env[name] || undefined
  // A relative one is invalid by the XDG specification, and would be another folder wherever reve is started.
  const base = (name: string): string | undefined => {
    const folder = value(name)
    return folder !== undefined && isAbsolute(folder) ? folder : undefined
  }
  const programs = value('REVE_PROGRAM_PATH')
  return {
    env: (name) => env[name],
    cacheDir: join(base('XDG_CACHE_HOME') ?? join(homedir(), '.cache'), 'reve'),
    runtimeDir: runtimeDir(base('XDG_RUNTIME_DIR'), process.getuid?.() ?? 0),
    ...(programs === undefined ? {} : { searchPath: programs.split(delimiter) }),
  }
}

/** What the microVM needs of them. */
export const vmHost = (around: Surroundings, onEvent?: MicroVmHost['onEvent']): MicroVmHost => ({
  cacheDir: around.cacheDir,
  runtimeDir: around.runtimeDir,
  registryCredentials: registryCredentials(authFiles(around.env, homedir())),
  programEnv: proxies(around.env),
  ...(around.searchPath === undefined ? {} : { searchPath: around.searchPath }),
  ...(onEvent === undefined ? {} : { onEvent }),
})

/** apt is told of a proxy by these. */
function proxies(env: Surroundings['env']): Readonly<Record<string, string>> {
  const names = ['http_proxy', 'https_proxy', 'no_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']
  return Object.fromEntries(names.flatMap((name) => (env(name) ? [[name, env(name) ?? '']] : [])))
}

function runtimeDir(xdg: string | undefined, uid: number): string {
  const preferred = xdg === undefined ? undefined : join(xdg, 'reve')
  if (preferred !== undefined && preferred.length <= 40) return preferred
  // A long TMPDIR (macOS) would not leave room for a socket's name.
  const temporary = join(tmpdir(), `reve-${uid}`)
  if (temporary.length <= 40) return temporary
  return join('/tmp', `reve-${uid}-${createHash('sha256').update(temporary).digest('hex').slice(0, 6)}`)
}

/** Hosts of this machine's Debian mirrors and npm registry, for the scaffold's `allow` list. */
export async function machineHosts(): Promise<MachineHosts> {
  const registry = await npmRegistry()
  return { debian: debianHosts(aptSources('/etc/apt')), npm: unique([hostOf(registry)]) }
}

function aptSources(folder: string): string {
  const read = (path: string): string => {
    try {
      return readFileSync(path, 'utf8')
    } catch (error) {
      // No apt, or a file that only root reads: the list says that no mirror was found.
      if (error instanceof Error && 'code' in error) return ''
      throw error
    }
  }
  const names = ((): readonly string[] => {
    try {
      return readdirSync(join(folder, 'sources.list.d'))
    } catch (error) {
      if (error instanceof Error && 'code' in error) return []
      throw error
    }
  })()
  const files = names
    .filter((name) => /\.(list|sources)$/.test(name))
    .map((name) => join(folder, 'sources.list.d', name))
  return [join(folder, 'sources.list'), ...files].map(read).join('\n')
}

/** Hosts of the lines that name a Debian archive (one-line and deb822 forms). Exported for its test. */
export function debianHosts(sources: string): readonly string[] {
  const uris = sources
    .split('\n')
    .filter((line) => /^\s*(deb\s|URIs:)/.test(line))
    .flatMap((line) => line.match(/https?:\/\/\S+/g) ?? [])
    .filter((uri) => /\/debian(-security)?\/?$/.test(uri))
  return unique(uris.map(hostOf))
}

function hostOf(uri: string | undefined): string | undefined {
  return uri !== undefined && URL.canParse(uri) ? new URL(uri).hostname : undefined
}

const unique = (names: readonly (string | undefined)[]): readonly string[] =>
  [...new Set(names.filter((name) => name !== undefined && name !== ''))] as string[]
