import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * One life of a process: a script of this folder, killed (SIGKILL) `moreMs` after it has told `lines` lines. Gives what it told; that it
 * ends by itself is an error.
 */
export function killedLife(
  script: string,
  args: readonly string[],
  {
    lines,
    moreMs,
    onLine,
  }: { readonly lines: number; readonly moreMs: number; readonly onLine?: (line: string) => void },
): Promise<readonly string[]> {
  return new Promise((resolve, reject) => {
    const file = fileURLToPath(new URL(script, import.meta.url))
    const child = spawn(process.execPath, ['--conditions=@reve/source', file, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), 'agent-test-cache') },
    })
    const told: string[] = []
    let stderr = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
    createInterface(child.stdout).on('line', (line) => {
      told.push(line)
      onLine?.(line)
      if (told.length === lines) setTimeout(() => child.kill('SIGKILL'), moreMs)
    })
    child.on('error', reject)
    child.on('close', (_code, signal) => {
      if (signal === 'SIGKILL') resolve(told)
      else reject(new Error(`${script} ended by itself: ${stderr}`))
    })
  })
}
