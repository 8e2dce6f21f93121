import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const file = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url))

test('the shipped agent is the one whose digest is written down, and small', () => {
  const [digest] = readFileSync(file('assets/SHA256SUMS'), 'utf8').split('  ')
  expect(
    createHash('sha256')
      .update(readFileSync(file('assets/guest-agent-x86_64')))
      .digest('hex'),
  ).toBe(digest)
  expect(statSync(file('assets/guest-agent-x86_64')).size).toBeLessThan(100_000)
})

/** Why the agent cannot be built as it was, or undefined. */
function whyNotBuilt(): string | undefined {
  const compiler = spawnSync('musl-gcc', ['-dumpfullversion'], { encoding: 'utf8' })
  if (compiler.status !== 0) return 'musl-gcc is not installed'
  if (!compiler.stdout.startsWith('12.2.'))
    return `the compiler is ${compiler.stdout.trim()}, the agent was built with 12.2`
  const libc = spawnSync('dpkg-query', ['-W', '-f', '${Version}', 'musl-dev'], { encoding: 'utf8' })
  return libc.stdout.startsWith('1.2.3-')
    ? undefined
    : `musl is ${libc.stdout || 'not of Debian'}, the agent was built with 1.2.3`
}
const why = whyNotBuilt()
if (why !== undefined) console.warn(`the guest agent is not rebuilt: ${why}`)

test.skipIf(why !== undefined)('its sources build to the very same bytes', () => {
  const folder = mkdtempSync(join(tmpdir(), 'agent-'))
  const built = spawnSync('sh', [file('guest/build.sh'), join(folder, 'agent')], { encoding: 'utf8' })
  expect([built.status, built.stderr]).toEqual([0, ''])
  expect(readFileSync(join(folder, 'agent')).equals(readFileSync(file('assets/guest-agent-x86_64')))).toBe(true)
  rmSync(folder, { recursive: true })
})
