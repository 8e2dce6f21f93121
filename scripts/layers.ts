/**
 * Which workspace package may import which: the table of docs/architecture.md. The lint rule (oxlint.config.ts) and the
 * house test (scripts/test/layers.test.ts) are both made from it, so an arrow that runs up breaks the build.
 */
export const layers = {
  'packages/base': [],
  'packages/session-log': ['@reve/base'],
  'packages/providers': ['@reve/base'],
  'packages/content-store': ['@reve/base'],
  'packages/lua-runtime': ['@reve/base'],
  'packages/sandbox-microvm': ['@reve/base'],
  'packages/harness': ['@reve/base', '@reve/providers/model', '@reve/session-log'],
  'packages/agent': [
    '@reve/base',
    '@reve/content-store',
    '@reve/harness',
    '@reve/lua-runtime',
    '@reve/providers',
    '@reve/sandbox-microvm',
    '@reve/session-log',
  ],
  'packages/action-runner': ['@reve/base', '@reve/content-store', '@reve/sandbox-microvm'],
  'packages/git-bridge': ['@reve/base', '@reve/content-store'],
  'packages/mcp-server': ['@reve/action-runner', '@reve/base', '@reve/content-store', '@reve/git-bridge'],
  'apps/reve-cli': [
    '@reve/agent',
    '@reve/base',
    '@reve/content-store',
    '@reve/harness',
    '@reve/lua-runtime',
    '@reve/providers',
    '@reve/sandbox-microvm',
    '@reve/session-log',
  ],
  'apps/kc-server': [
    '@reve/action-runner',
    '@reve/base',
    '@reve/content-store',
    '@reve/git-bridge',
    '@reve/mcp-server',
    '@reve/sandbox-microvm',
  ],
} as const satisfies Readonly<Record<string, readonly string[]>>

/** True if code of the package at `folder` may import the module `specifier`; a name outside of the workspace always may. */
export function mayImport(folder: keyof typeof layers, specifier: string): boolean {
  if (!specifier.startsWith('@reve/')) return true
  return layers[folder].some((allowed: string) => specifier === allowed || specifier.startsWith(`${allowed}/`))
}
