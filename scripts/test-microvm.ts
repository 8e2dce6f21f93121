/**
 * The tests of the VM on every backend that can boot here: QEMU always, and with `--nested` microsandbox in a machine that
 * QEMU emulates with virtualisation of its own, where the hardware has none (about five minutes). Other arguments go to vitest.
 *
 *     npm run test:microvm -- --nested
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const args = process.argv.slice(2)
const nested = args.includes('--nested')

/** Runs a program to its end; its failure is ours. */
function run(command: string, ...rest: readonly string[]): void {
  const { status, error } = spawnSync(command, rest, { cwd: root, stdio: 'inherit' })
  if (error !== undefined) throw error
  if (status !== 0) process.exit(status ?? 1)
}

if (nested) run('node', '--conditions=@reve/source', 'packages/sandbox-microvm/nested/run.ts')
else run('vitest', 'run', '--project', 'sandbox-microvm', ...args)
