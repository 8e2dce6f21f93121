import type { SandboxPolicy } from './policy.ts'

/**
 * Environment by which git in the guest answers a host of a secret that asks for a password: with the placeholder, which
 * is all that the guest has. Nothing is written to a file; a `GIT_CONFIG_COUNT` of the policy's own takes precedence.
 */
export function gitCredentialEnv(secrets: SandboxPolicy['secrets']): Readonly<Record<string, string>> {
  const helpers = secrets.flatMap(({ env, hosts }) => hosts.map((host) => [host, helperOf(env)] as const))
  if (helpers.length === 0) return {}
  return Object.fromEntries([
    ['GIT_CONFIG_COUNT', String(helpers.length)],
    ...helpers.flatMap(([host, helper], index) => [
      [`GIT_CONFIG_KEY_${index}`, `credential.https://${host}.helper`],
      [`GIT_CONFIG_VALUE_${index}`, helper],
    ]),
  ])
}

// Hosts of tokens take any user name; the variable is looked up when git asks, so that a command may have its own.
const helperOf = (variable: string): string =>
  `!f() { test "$1" = get && printf 'username=x-access-token\\npassword=%s\\n' "$${variable}"; }; f`
