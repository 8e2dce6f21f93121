import { blake3 } from '@noble/hashes/blake3.js'
import { bytesToHex } from '@noble/hashes/utils.js'
import { readFileSync, statSync } from 'node:fs'
import { arch, platform, release } from 'node:os'
import { defaultPath } from './environment.ts'

/**
 * A fingerprint of what local actions find on this host: system, release, and the folders of programs with the time of
 * their last change, so that an installed or upgraded tool makes known results unknown. 64 lowercase hex.
 *
 * @param path the `PATH` of actions.
 */
export function hostFingerprint(path: string = defaultPath): string {
  const facts = [platform(), arch(), release(), textOf('/etc/os-release')]
  for (const place of [...path.split(':'), '/usr/lib', '/var/lib/dpkg/status', '/lib/apk/db/installed', '/var/lib/rpm'])
    facts.push(`${place} ${changeOf(place)}`)
  return bytesToHex(blake3(new TextEncoder().encode(facts.join('\0'))))
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function changeOf(path: string): string {
  try {
    const { mtimeMs, size, ino } = statSync(path)
    return `${mtimeMs} ${size} ${ino}`
  } catch {
    return 'absent'
  }
}
