import { spawn, type ChildProcess } from 'node:child_process'
import { mkdir, mkdtemp, realpath, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The program, to be run with the `@reve/source` condition. */
export const main = fileURLToPath(new URL('../src/main.ts', import.meta.url))

export type CliRun = {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs the real program, from its sources, in `cwd`. */
export function reve(
  args: readonly string[],
  cwd: string,
  options: {
    readonly env?: Readonly<Record<string, string>>
    readonly stdin?: string
    readonly started?: (child: ChildProcess) => void
  } = {},
): Promise<CliRun> {
  const child = spawn(process.execPath, ['--conditions=@reve/source', main, ...args], {
    cwd,
    env: { ...process.env, ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  options.started?.(child)
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.stdin ?? '')
  return new Promise((resolve, reject) => {
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk))
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => (stderr += chunk))
    child.on('error', reject)
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }))
  })
}

/** A fresh folder with these files. */
export async function folderWith(files: Readonly<Record<string, string>>): Promise<string> {
  const root = await realpath(await mkdtemp(join(tmpdir(), 'reve-cli-')))
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), text)
  }
  return root
}

/** An agent's files: the small image that the tests share, and a scripted model with these turns (YAML). */
export const agentFiles = (turns: string): Readonly<Record<string, string>> => ({
  'agent.lua': 'agent { model = "demo/scripted" }\n',
  'sandbox.lua': 'sandbox { packages = { "git", "python3" }, memory = 1024 }\n',
  'models.yml': 'providers:\n  demo:\n    api: scripted\n    models:\n      - { id: scripted, script: turns.yml }\n',
  'turns.yml': turns,
})
