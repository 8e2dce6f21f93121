import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import type { Job, Told } from './kill-world.ts'

/** A process of `kill-child.ts`. */
export type Child = {
  readonly process: ChildProcess
  /** All that it told so far; complete once `ended` has resolved. */
  readonly told: readonly Told[]
  /** Gives it its job; resolves when it has told the first thing of that type. */
  start(job: Job, until: Told['type']): Promise<void>
  /** Kills it, and waits until it is dead and heard to its end. */
  kill(): Promise<void>
  readonly ended: Promise<{
    readonly code: number | null
    readonly signal: NodeJS.Signals | null
    readonly stderr: string
  }>
}

const script = fileURLToPath(new URL('kill-child.ts', import.meta.url))

/** Starts a process; it loads its modules and waits for its job. It is gone when the test ends. `cache`: where compiled modules are kept. */
export function startChild(cache: string): Child {
  const child = spawn(process.execPath, ['--conditions=@reve/source', script], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, NODE_COMPILE_CACHE: cache },
  })
  const told: Told[] = []
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  // A child that is killed before it reads its job breaks the pipe; how it ended is told by `ended`.
  child.stdin.on('error', (error) => (stderr += error.message))
  const lines = createInterface(child.stdout)
  lines.on('line', (line) => {
    // The kill may cut the last word.
    if (line.endsWith('}')) told.push(JSON.parse(line))
  })
  const ended = new Promise<Awaited<Child['ended']>>((resolve) =>
    child.on('close', (code, signal) => resolve({ code, signal, stderr })),
  )
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await ended
  })

  async function heard(type: Told['type']): Promise<void> {
    while (!told.some((one) => one.type === type)) {
      const { stderr: why } = (await Promise.race([once(lines, 'line').then(() => undefined), ended])) ?? {}
      if (why !== undefined && !told.some((one) => one.type === type))
        throw new Error(`the child ended before "${type}": ${why}`)
    }
  }

  return {
    process: child,
    told,
    ended,
    async start(job, until) {
      await heard('ready')
      child.stdin.write(`${JSON.stringify(job)}\n`)
      await heard(until)
    },
    async kill() {
      child.kill('SIGKILL')
      const { signal, stderr: why } = await ended
      if (signal !== 'SIGKILL') throw new Error(`the child ended by itself: ${why}`)
    },
  }
}
