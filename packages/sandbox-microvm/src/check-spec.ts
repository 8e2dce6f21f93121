import { existsSync, statSync } from 'node:fs'
import { isAbsolute, normalize } from 'node:path/posix'
import { MicroVmError } from './errors.ts'
import { checkImageSpec } from './images/reference.ts'
import type { MicroVmHost, MicroVmSpec } from './spec.ts'

/** A socket's path may take about 100 bytes; this leaves room for a VM's folder and the socket's name. */
const RUNTIME_DIR_BYTES = 60

/** Everything that is wrong with a spec and its host, in one `bad_spec`. */
export function checkSpec(spec: MicroVmSpec, host: MicroVmHost): void {
  const problems: string[] = []
  const expect = (holds: boolean, problem: string): void => {
    if (!holds) problems.push(problem)
  }
  const whole = (value: number, from: number, to: number, name: string): void =>
    expect(
      Number.isInteger(value) && value >= from && value <= to,
      `${name} is ${value}; it takes a whole number from ${from} to ${to}`,
    )
  const folder = (path: string, name: string): void =>
    expect(isAbsolute(path) && !path.includes('\0'), `${name} "${path}" is not an absolute path`)

  expect(/^[A-Za-z0-9_-]{1,64}$/.test(spec.name), `name "${spec.name}" takes 1 to 64 letters, digits, "_" and "-"`)
  whole(spec.cpus, 1, 64, 'cpus')
  whole(spec.memoryMiB, 128, 1 << 20, 'memoryMiB')
  whole(spec.diskMiB, 1024, 1 << 24, 'diskMiB')
  whole(spec.idleStopMs, 0, 2_147_483_647, 'idleStopMs')
  folder(spec.stateDir, 'stateDir')
  folder(host.cacheDir, 'cacheDir')
  folder(host.runtimeDir, 'runtimeDir')
  folder(spec.workdir, 'workdir')
  expect(
    Buffer.byteLength(host.runtimeDir) <= RUNTIME_DIR_BYTES,
    `runtimeDir "${host.runtimeDir}" is longer than ${RUNTIME_DIR_BYTES} bytes, too long for a socket below it; use a shorter one`,
  )
  const guests = new Set<string>()
  for (const mount of spec.mounts) {
    folder(mount.host, 'the host folder of a mount')
    expect(!existsSync(mount.host) || statSync(mount.host).isDirectory(), `${mount.host} is not a folder`)
    expect(existsSync(mount.host), `${mount.host} does not exist, so it cannot be mounted`)
    const plain =
      isAbsolute(mount.guest) &&
      normalize(mount.guest) === mount.guest &&
      mount.guest !== '/' &&
      !mount.guest.endsWith('/')
    expect(
      plain && !mount.guest.includes('\0') && Buffer.byteLength(mount.guest) < 500,
      `"${mount.guest}" cannot be mounted on: give an absolute path without "." and ".."`,
    )
    expect(!guests.has(mount.guest), `${mount.guest} is mounted on twice`)
    guests.add(mount.guest)
  }
  for (const name of Object.keys(spec.env))
    expect(/^[^=\0]+$/.test(name), `"${name}" cannot name an environment variable`)
  for (const command of spec.bootstrap)
    expect(command.trim() !== '' && !command.includes('\0'), 'a bootstrap command is empty or holds a NUL')
  expect(spec.egress.kind !== 'open', 'egress "open" is not carried by this version: a guest has no network at all')
  try {
    checkImageSpec(spec.image)
  } catch (error) {
    if (!(error instanceof MicroVmError)) throw error
    problems.push(error.message)
  }
  if (problems.length > 0)
    throw new MicroVmError('bad_spec', `the VM "${spec.name}" cannot be made: ${problems.join('; ')}`)
}
