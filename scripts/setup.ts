// What the programs and their tests need beyond packages: system programs, and the small VM image. Runs before every
// `npm start` and `npm test`; when all is there it takes a fraction of a second and needs no network.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { isReveError } from '@reve/base'
import { hostPackages, prepareImage, prepareKernel } from '@reve/sandbox-microvm'
import { surroundings, vmHost } from '../apps/reve-cli/src/surroundings.ts'
import { createOutput, paint } from '../apps/reve-cli/src/output.ts'
import { vmProgress } from '../apps/reve-cli/src/vm-progress.ts'

/** The image of the demonstration and of the tests: Debian's minimal system, git and Python. */
const image = { ref: 'debian:trixie-slim', packages: ['git', 'python3'] }

const output = createOutput(process.env)
const around = surroundings(process.env)
const host = vmHost(around, vmProgress(output))

const onPath = (program: string): boolean =>
  (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, program)))

async function programs(): Promise<void> {
  const { missing, command } = await hostPackages(host)
  const needsGit = !onPath('git')
  if (missing.length === 0 && !needsGit) return
  const names = [...(needsGit ? ['git'] : []), ...missing.map(({ program }) => program)]
  const install = `${command}${needsGit ? (command === '' ? 'apt-get install -y --no-install-recommends git' : ' git') : ''}`
  const debianRoot = process.getuid?.() === 0 && existsSync('/etc/debian_version')
  if (!debianRoot) {
    output.note(paint('yellow', '! '), `missing on this machine: ${names.join(', ')}. Install with:\n    ${install}`)
    return
  }
  output.note(`installing system packages for ${names.join(', ')}`)
  for (const words of [
    ['apt-get', 'update', '-qq'],
    ['env', 'DEBIAN_FRONTEND=noninteractive', ...install.split(' ')],
  ]) {
    const [program = '', ...args] = words
    const result = spawnSync(program, args, { stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' })
    if (result.status === 0) continue
    output.note(
      paint('red', '✗ '),
      `${words.join(' ')} failed:\n${result.error?.message ?? result.stderr.trim().split('\n').slice(-5).join('\n')}`,
    )
    process.exit(1)
  }
}

try {
  await programs()
  await prepareKernel(host)
  await prepareImage(image, host)
} catch (error) {
  if (!isReveError(error)) throw error
  // Without a VM the other half still works; what needs one says so itself.
  output.note(paint('yellow', '! '), `no microVM can be prepared here: ${error.message}`)
}
