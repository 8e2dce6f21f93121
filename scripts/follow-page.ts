import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { printed, stepsOfPage, type Step } from './page.ts'

export type FollowOptions = {
  /** Where the reader is. */
  readonly cwd: string
  /** Variables of the reader's terminals, beside those of this process. */
  readonly env?: Readonly<Record<string, string>>
  /** What is other here than on the page, such as a port: every text to replace, in commands, files and output. */
  readonly here?: Readonly<Record<string, string>>
  /** Called before each step. */
  readonly beforeStep?: (step: Step) => void | Promise<void>
}

/**
 * Does what a page says, as its reader would: writes its files and types its commands into one shell, whose folder and variables
 * last, and looks at what is printed.
 *
 * @returns how many steps there were.
 * @throws Error naming the line of the page, for commands that fail or print something else.
 */
export async function followPage(page: URL, options: FollowOptions): Promise<number> {
  const steps = stepsOfPage(page)
  await using shell = await openShell(options)
  await using others = otherTerminals(options)
  for (const step of steps) {
    await options.beforeStep?.(step)
    const text = replaced(step.text, options.here)
    switch (step.type) {
      case 'file': {
        const path = join(await shell.folder(), step.path)
        await mkdir(dirname(path), { recursive: true })
        await writeFile(path, text)
        break
      }
      case 'stop':
        await others.stop()
        break
      case 'commands': {
        const prints = step.prints === undefined ? undefined : replaced(step.prints, options.here)
        const { output, problem } = step.elsewhere
          ? await others.start(text, await shell.folder(), prints)
          : await shell.type(text, step.fails)
        const wrong = problem ?? (prints === undefined || printed(output, prints) ? undefined : 'print something else')
        if (wrong !== undefined) {
          throw new Error(
            `${fileURLToPath(page)}:${step.line}: the commands ${wrong}\n${text}--- printed\n${output}--- the page says\n${prints ?? ''}`,
          )
        }
        break
      }
      default:
        step satisfies never
    }
  }
  return steps.length
}

function replaced(text: string, here: FollowOptions['here'] = {}): string {
  return Object.entries(here).reduce((result, [from, to]) => result.replaceAll(from, to), text)
}

type Ran = { readonly output: string; readonly problem: string | undefined }

/** One terminal: commands are typed into it, and it remembers its folder and its variables. */
async function openShell({ cwd, env }: FollowOptions) {
  const notes = await mkdtemp(join(tmpdir(), 'page-'))
  const child = spawn('bash', ['--norc', '-s'], {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })
  const ended = once(child, 'close').then(() => undefined)
  child.stdin.on('error', () => undefined)
  let count = 0

  /** Has the shell do it and say one line; undefined when the shell has ended over it. */
  const ask = async (command: string): Promise<string | undefined> => {
    const line = once(lines, 'line').then(([text]) => String(text))
    child.stdin.write(`${command}\n`)
    return Promise.race([line, ended])
  }
  return {
    /** The folder that its commands have led to. */
    folder: async (): Promise<string> => (await ask('pwd')) ?? cwd,
    async type(commands: string, fails: boolean): Promise<Ran> {
      const file = join(notes, `${(count += 1)}.sh`)
      const out = `${file}.out`
      await writeFile(file, commands)
      const code = await ask(`set ${fails ? '+e' : '-e'}; . ${file} </dev/null >${out} 2>&1; echo $?`)
      const output = await readFile(out, 'utf8')
      if (code === undefined) return { output, problem: 'fail' }
      return { output, problem: fails && code === '0' ? 'do not fail' : undefined }
    },
    async [Symbol.asyncDispose]() {
      child.stdin.end()
      await ended
      await rm(notes, { recursive: true, force: true })
    },
  }
}

/** How long a program in another terminal may take to say what the page shows. */
const patienceMs = 100_000

/** Terminals in which something runs until it is stopped. */
function otherTerminals({ env }: FollowOptions) {
  /** Process groups, so that what a shell started is reached as well. */
  const groups: number[] = []
  const stop = async (): Promise<void> => {
    for (const group of groups.splice(0)) {
      for (const signal of ['SIGINT', 'SIGKILL'] as const) {
        if (!isRunning(group)) break
        process.kill(-group, signal)
        for (let wait = 0; wait < 200 && isRunning(group); wait++) await delay(50)
      }
    }
  }
  return {
    /** Starts the commands, and waits until they have printed it. */
    async start(commands: string, cwd: string, prints: string | undefined): Promise<Ran> {
      const folder = await mkdtemp(join(tmpdir(), 'page-'))
      const out = join(folder, 'out')
      await using handle = await open(out, 'a')
      const child = spawn('bash', ['--norc', '-c', commands], {
        cwd,
        env: { ...process.env, ...env },
        detached: true,
        stdio: ['ignore', handle.fd, handle.fd],
      })
      if (child.pid === undefined) return { output: '', problem: 'cannot be started' }
      groups.push(child.pid)
      for (let waited = 0; ; waited += 50) {
        const output = await readFile(out, 'utf8')
        if (prints === undefined || printed(output, prints)) return { output, problem: undefined }
        if (child.exitCode !== null) return { output, problem: `end with ${child.exitCode}` }
        if (waited > patienceMs) return { output, problem: undefined }
        await delay(50)
      }
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

/** Whether anything of a process group is left. */
function isRunning(group: number): boolean {
  try {
    return process.kill(-group, 0)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return false
    throw error
  }
}
