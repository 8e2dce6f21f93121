import { mkdir, readFile, realpath } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { ConfinedError, messageOf, openConfined, type Confined } from '@reve/base'
import { AgentError } from './errors.ts'

/** Hosts that the scaffold's `allow` list takes from the machine that runs `reve init`. */
export type MachineHosts = {
  /** Hosts of the machine's Debian mirrors; empty where there are none. */
  readonly debian: readonly string[]
  /** Hosts of its npm registries; empty where npm is not set up. */
  readonly npm: readonly string[]
}

export type ScaffoldEntry = {
  /** Path below the root, with `/`. */
  readonly path: string
  /** `changed`: the file exists with other contents and was left as it is. */
  readonly state: 'created' | 'unchanged' | 'changed'
}

export type ScaffoldReport = {
  /** Real path of the agent's root. */
  readonly root: string
  readonly entries: readonly ScaffoldEntry[]
}

/** Template file → path in the agent's folder, in the order in which they are reported. */
const files: readonly (readonly [template: string, path: string])[] = [
  ['agent.lua', 'agent.lua'],
  ['sandbox.lua', 'sandbox.lua'],
  ['tools/example.lua', 'tools/example.lua'],
  ['instructions.md', 'instructions.md'],
  ['models.yml', 'models.yml'],
  ['workspace/AGENTS.md', 'workspace/AGENTS.md'],
  ['workspace/SOUL.md', 'workspace/SOUL.md'],
  ['workspace/KNOWLEDGE.md', 'workspace/KNOWLEDGE.md'],
  ['workspace/HEARTBEAT.yml', 'workspace/HEARTBEAT.yml'],
  ['gitignore', '.gitignore'],
]

const folders = ['tools', 'channels', 'workspace', 'workspace/knowledge', 'workspace/notes', 'workspace/skills']

/** Largest file that is compared with a template; a larger one is certainly edited. */
const comparableBytes = 1 << 20

/**
 * Makes `root` an agent directory, or completes one. Running it again changes nothing: a file that matches its template
 * is `unchanged`, one that the user edited is kept. Nothing is written outside of `root`, not even through a link.
 *
 * @param root folder to fill; created with its parents when missing.
 * @throws AgentError `io` when a file cannot be written, naming it; what was created before stays and is found
 *   unchanged the next time.
 */
export async function scaffold(root: string, hosts: MachineHosts): Promise<ScaffoldReport> {
  const target = resolve(root)
  try {
    await mkdir(target, { recursive: true })
  } catch (cause) {
    throw new AgentError('io', `${target} cannot be made a folder: ${messageOf(cause)}`, { cause })
  }
  const real = await realpath(target)
  const confined = await openConfined(real)
  const entries: ScaffoldEntry[] = []
  let at = real
  try {
    for (const folder of folders) {
      at = join(real, folder)
      await confined.mkdirp(folder)
    }
    for (const [template, path] of files) {
      at = join(real, path)
      const text = fill(await readFile(new URL(`../templates/${template}`, import.meta.url), 'utf8'), hosts)
      if (!(await confined.exists(path))) {
        await confined.writeAtomic(path, text, { mode: 0o644 })
        entries.push({ path, state: 'created' })
        continue
      }
      entries.push({ path, state: (await holds(confined, path, text)) ? 'unchanged' : 'changed' })
    }
  } catch (cause) {
    throw new AgentError('io', `${at} cannot be written: ${messageOf(cause)}`, { cause })
  }
  return { root: real, entries }
}

/** Whether the file is there with just this text. A link of the user's is as much theirs as an edit: it is not followed. */
async function holds(confined: Confined, path: string, text: string): Promise<boolean> {
  try {
    const { size } = await confined.stat(path)
    return size <= comparableBytes && (await confined.readText(path, { maxBytes: comparableBytes })) === text
  } catch (error) {
    if (error instanceof ConfinedError && error.code === 'is_link') return false
    throw error
  }
}

/** Puts the machine's hosts where the template's list names them, or says that there are none. */
function fill(template: string, hosts: MachineHosts): string {
  const lines = (names: readonly string[], kind: string): string =>
    names.length > 0
      ? names.map((name) => `    ${JSON.stringify(name)},`).join('\n')
      : `    -- (no ${kind} was found on the machine that ran reve init)`
  return template
    .replace('{{debian_hosts}}', () => lines(hosts.debian, 'Debian mirror'))
    .replace('{{npm_hosts}}', () => lines(hosts.npm, 'npm registry'))
}
