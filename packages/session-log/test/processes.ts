import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import type { JsonObject } from '../src/index.ts'

export type Child = {
  readonly process: ChildProcess
  /** All that it said so far; complete once `ended` has resolved. */
  readonly said: readonly JsonObject[]
  /** Resolves when it has said so many things. */
  heard(count: number): Promise<void>
  readonly ended: Promise<{
    readonly code: number | null
    readonly signal: NodeJS.Signals | null
    readonly stderr: string
  }>
}

/** Starts `child.ts`, through a shell with `limits` first when given. It is killed when the test ends. */
export function startChild(what: 'hold' | 'append' | 'fill', file: string, limits?: string): Child {
  const script = fileURLToPath(new URL('child.ts', import.meta.url))
  const args = ['--conditions=@reve/source', script, what, file]
  const child =
    limits === undefined
      ? spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
      : spawn('sh', ['-c', `${limits}; exec "$@"`, 'sh', process.execPath, ...args], {
          stdio: ['ignore', 'pipe', 'pipe'],
        })
  const said: JsonObject[] = []
  const waiting = new Set<() => void>()
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  createInterface(child.stdout).on('line', (line) => {
    // The kill may cut the last word.
    if (line.endsWith('}')) said.push(JSON.parse(line))
    for (const wake of waiting) wake()
  })
  const ended = new Promise<Awaited<Child['ended']>>((resolve) =>
    child.on('close', (code, signal) => {
      resolve({ code, signal, stderr })
      for (const wake of waiting) wake()
    }),
  )
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const heard = (count: number) =>
    new Promise<void>((resolve, reject) => {
      const check = () => {
        if (said.length >= count) resolve()
        else if (child.exitCode !== null || child.signalCode !== null) reject(new Error(`the child ended: ${stderr}`))
        else return
        waiting.delete(check)
      }
      waiting.add(check)
      check()
    })
  return { process: child, said, heard, ended }
}
