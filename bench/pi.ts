import { execFile } from 'node:child_process'
import { mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)
const piPackage = '@earendil-works/pi-coding-agent'
export const piVersion = '1.6.0'
const folder = fileURLToPath(new URL(`out/pi-${piVersion}/`, import.meta.url))

/** A file of the peer's package. */
export const piFile = (path: string): string => join(folder, 'node_modules', piPackage, path)
/** The peer's program. */
export const piProgram = join(folder, 'node_modules/.bin/pi')

/** Installs the peer in a folder of its own (once: some 170 MB that nobody else needs). */
export async function installPi(): Promise<void> {
  mkdirSync(folder, { recursive: true })
  if (statSync(piFile('package.json'), { throwIfNoEntry: false }) !== undefined) return
  const flags = ['--ignore-scripts', '--omit=optional', '--no-audit', '--no-fund', '--no-save']
  await run('npm', ['install', '--prefix', folder, ...flags, `${piPackage}@${piVersion}`])
}
