import { access, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { agentFiles, projectFiles } from './agent-files.ts'
import { DemoFailure, dim, heading, must, run, say, typed } from './show.ts'

const git = [
  'git',
  '-c',
  'user.name=Demo',
  '-c',
  'user.email=demo@example.com',
  '-c',
  'init.defaultBranch=main',
] as const

/** reve's main job: an agent mends a failing test in a microVM, is killed inside a tool, and goes on. */
export async function reveDemo(folder: string, model: string): Promise<void> {
  heading('reve: an agent mends a failing test, every command in a microVM')
  const doctor = await run(['reve', 'doctor'], { cwd: folder, quiet: true })
  if (doctor.code !== 0) {
    say(doctor.stdout.trimEnd())
    throw new DemoFailure('no microVM can boot on this machine, and reve runs nothing without one', 4)
  }
  await must(['reve', 'init', folder], { cwd: folder })
  await write(folder, agentFiles(model))

  const workspace = join(folder, 'workspace')
  await write(workspace, projectFiles)
  await must([...git, 'init', '--quiet'], { cwd: workspace, quiet: true })
  await must([...git, 'add', '.'], { cwd: workspace, quiet: true })
  await must([...git, 'commit', '--quiet', '-m', 'a word counter with a failing test'], { cwd: workspace, quiet: true })
  say(dim('(its workspace/ now holds a small Python project whose test fails, its sandbox.lua names a small image)'))

  await must(['reve', 'run', 'The unit tests fail (python3 -m unittest). Mend the code, not the test.'], {
    cwd: folder,
  })
  await must(['reve', 'exec', '--', 'python3', '-m', 'unittest'], { cwd: folder })

  heading('reve: killed with SIGKILL inside a tool, and started again')
  const killed = await run(['reve', 'run', '--continue', 'Now run slow-check.sh and tell me what it says.'], {
    cwd: folder,
    started: (child) => {
      void whenExists(
        join(workspace, 'slow-check.log'),
        () => child.exitCode !== null || child.signalCode !== null,
      ).then((running) => {
        if (running) child.kill('SIGKILL')
      })
    },
  })
  if (killed.signal !== 'SIGKILL') throw new DemoFailure(`reve should have been killed, it ended with ${killed.code}`)
  say(dim('\n(kill -9 while the command runs: no handler, no goodbye)'))
  await must(['reve', 'run', '--continue'], { cwd: folder })
  await showLog(folder)
}

async function write(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(folder, path, '..'), { recursive: true })
    await writeFile(join(folder, path), text)
  }
}

/** Resolves true when `file` appears, false when `ended` says that nobody will make it. */
async function whenExists(file: string, ended: () => boolean): Promise<boolean> {
  while (!ended()) {
    const there = await access(file).then(
      () => true,
      () => false,
    )
    if (there) return true
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return false
}

/** The session as it stands on disk: one line a mutation, intent before effect. */
async function showLog(folder: string): Promise<void> {
  const sessions = join(folder, '.reve', 'sessions')
  const [file] = (await readdir(sessions)).toSorted()
  if (file === undefined) throw new DemoFailure('there is no session on disk')
  const lines = (await readFile(join(sessions, file), 'utf8')).trimEnd().split('\n')
  typed(['tail', '-n', '8', `.reve/sessions/${file}`])
  for (const line of lines.slice(-8)) say(line.length > 150 ? `${line.slice(0, 150)}…` : line)
  say(dim(`(${lines.length} lines; format v4, documented in docs/session-format.md)`))
  await must(['reve', 'sessions', 'verify'], { cwd: folder })
}
