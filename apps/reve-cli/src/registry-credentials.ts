import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { codeOf } from '@reve/base'
import type { MicroVmHost } from '@reve/sandbox-microvm'
import * as v from 'valibot'

const AuthFile = v.object({
  auths: v.optional(v.record(v.string(), v.object({ auth: v.optional(v.string()) })), {}),
})

/** Docker's own registry goes by this name in its file. */
const DOCKER_HUB = 'https://index.docker.io/v1/'

/**
 * Names and passwords that `docker login`, `podman login` or `skopeo login` wrote down in a file; those that a helper program
 * keeps are not asked for. The first file that has the registry counts. A file is read when a registry asks.
 */
export function registryCredentials(files: readonly string[]): NonNullable<MicroVmHost['registryCredentials']> {
  return (registry) => {
    for (const file of files) {
      const auths = readAuths(file)
      const names = registry === 'docker.io' ? [DOCKER_HUB, 'docker.io'] : [registry, `https://${registry}`]
      const found = names.map((name) => decode(auths[name]?.auth)).find((each) => each !== undefined)
      if (found !== undefined) return found
    }
    return undefined
  }
}

/** Where they are, most specific first. */
export function authFiles(env: (name: string) => string | undefined, home: string): readonly string[] {
  const under = (name: string, ...path: readonly string[]): readonly string[] => {
    const folder = env(name)
    return folder === undefined || folder === '' ? [] : [join(folder, ...path)]
  }
  return [
    ...under('REGISTRY_AUTH_FILE'),
    ...under('DOCKER_CONFIG', 'config.json'),
    ...under('XDG_RUNTIME_DIR', 'containers', 'auth.json'),
    join(home, '.config', 'containers', 'auth.json'),
    join(home, '.docker', 'config.json'),
  ]
}

function readAuths(file: string): v.InferOutput<typeof AuthFile>['auths'] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    if (codeOf(error) !== undefined) return {}
    throw error
  }
  // A file that others write and that is not understood has no credentials: the registry then says that it wants some.
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), AuthFile), text)
  return parsed.success ? parsed.output.auths : {}
}

function decode(auth: string | undefined): { readonly username: string; readonly password: string } | undefined {
  const text = Buffer.from(auth ?? '', 'base64').toString()
  const colon = text.indexOf(':')
  return colon <= 0 ? undefined : { username: text.slice(0, colon), password: text.slice(colon + 1) }
}
