import { dirname } from 'node:path'
import { findProgram, type HostProgram, runHost } from '../host-process.ts'

/** What QEMU may see of the host besides its own program files. */
export type BoxPaths = {
  readonly readonly: readonly string[]
  readonly writable: readonly string[]
  /** Device files. */
  readonly devices: readonly string[]
}

/** A program and its arguments. */
export type Command = { readonly program: HostProgram; readonly args: readonly string[] }

/** Program files and nothing of /etc but the linker's cache. */
const SYSTEM: readonly string[] = [
  '--ro-bind',
  '/usr',
  '/usr',
  ...['bin', 'sbin', 'lib', 'lib32', 'lib64'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
]

/**
 * Own namespaces of everything (no network, no processes of the host), no capability (so that a guest's chown and mknod on
 * a share fail even where we are root), no new privileges, and death with the parent. Inside, the owner of the shared
 * files has the number 0, as the guest's root has: git refuses to work in a folder that is somebody else's.
 */
const CLOSED: readonly string[] = [
  '--unshare-all',
  '--uid',
  '0',
  '--gid',
  '0',
  '--die-with-parent',
  '--new-session',
  '--cap-drop',
  'ALL',
  '--proc',
  '/proc',
  '--dev',
  '/dev',
  '--tmpfs',
  '/tmp',
]

/** Where bwrap finds the system call filter: the starter writes `seccompFilter()` to it. */
const FILTER_DESCRIPTOR = 3

/** `command` inside of a bubblewrap box that has only these paths, each where it is on the host. */
export function boxed(command: Command & { readonly path: string }, paths: BoxPaths): Command {
  const bind = (option: string, list: readonly string[]): readonly string[] =>
    list.flatMap((path) => [option, path, path])
  return {
    program: 'bwrap',
    args: [
      ...SYSTEM,
      ...CLOSED,
      ...bind('--ro-bind-try', ['/etc/ld.so.cache', '/etc/alternatives']),
      // A QEMU of one's own is bound with its folder's parent: its data files lie beside it.
      ...(command.path.startsWith('/usr/') ? [] : bind('--ro-bind', [dirname(dirname(command.path))])),
      ...bind('--ro-bind', paths.readonly),
      ...bind('--bind', paths.writable),
      ...bind('--dev-bind', paths.devices),
      // The filter is read from the first descriptor after the standard ones.
      ...['--seccomp', String(FILTER_DESCRIPTOR), '--chdir', '/'],
      '--',
      command.path,
      ...command.args,
    ],
  }
}

/** Whether bubblewrap is here and may make its namespaces. */
export async function boxWorks(searchPath: readonly string[]): Promise<boolean> {
  if (findProgram('bwrap', searchPath) === undefined) return false
  const run = await runHost('bwrap', [...SYSTEM, ...CLOSED, '--', '/usr/bin/true'], { searchPath })
  return run.code === 0
}

/**
 * Runs its arguments as a program and kills it as soon as its own input ends. The write end of that pipe is the owner's:
 * the system closes it however the owner dies.
 */
const WATCHER = `
const { spawn } = require('node:child_process')
const [path, ...args] = process.argv.slice(1)
const child = spawn(path, args, { stdio: ['ignore', 'inherit', 'inherit'] })
const end = () => child.kill('SIGKILL')
process.stdin.on('end', end).on('error', end).resume()
process.on('SIGTERM', end)
child.on('error', (error) => { console.error(String(error)); process.exit(127) })
child.on('exit', (code) => process.exit(code ?? 1))
`

/** `command` under a watcher, where there is no box: it still dies with its owner. */
export function watched(
  command: Command & { readonly path: string },
  searchPath: readonly string[],
  isRoot: boolean,
): Command {
  // Root without capabilities may write its own files and no more: a guest's mknod and chown on a share fail.
  const setpriv = isRoot ? findProgram('setpriv', searchPath) : undefined
  const bare = setpriv === undefined ? [] : [setpriv, '--inh-caps=-all', '--bounding-set=-all', '--no-new-privs', '--']
  return { program: 'node', args: ['-e', WATCHER, ...bare, command.path, ...command.args] }
}
