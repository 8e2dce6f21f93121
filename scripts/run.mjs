// The one entry point of the workspace. It needs only Node >= 18.12 and npm, so it is plain JavaScript without imports
// from elsewhere:
//   1. installs the workspace from its lockfile with the pinned pnpm, once per lockfile;
//   2. puts node_modules/.bin first on PATH, so that `node` there is the pinned Node, `pnpm` and `turbo` the pinned ones;
//   3. runs the asked command; what it needs beyond packages (programs, the VM image) is scripts/setup.ts' business.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const windows = process.platform === 'win32'
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const modules = join(root, 'node_modules')
const stampFile = join(modules, '.setup-stamp')
const lockFile = join(modules, '.setup-lock')

const env = { ...process.env, TURBO_TELEMETRY_DISABLED: '1', DO_NOT_TRACK: '1' }
// npm hands its own settings down as npm_config_*; pnpm warns about those that it does not know.
for (const key of Object.keys(env))
  if (/^npm_(config|package|lifecycle|command|node|execpath)/i.test(key)) delete env[key]
const pathKey = Object.keys(env).find((key) => key.toUpperCase() === 'PATH') ?? 'PATH'
env[pathKey] = join(modules, '.bin') + delimiter + (env[pathKey] ?? '')

const say = (text) => process.stderr.write(`${text}\n`)

/** Runs a program to its end and hands its failure on: the same exit code, or 128 + the signal as a shell says it. */
function run(command, args, options = {}) {
  const result = spawnSync(command, args, { cwd: root, stdio: 'inherit', env, shell: windows, ...options })
  if (result.error) {
    say(`${command}: ${result.error.message}`)
    process.exit(1)
  }
  if (result.signal) process.exit(128 + (constants.signals[result.signal] ?? 0))
  if (result.status !== 0) process.exit(result.status ?? 1)
}

/** The pinned Node on one of our TypeScript files, against the packages' sources. */
const script = (file, args = []) => run('node', ['--conditions=@reve/source', join('scripts', file), ...args])

/** The process that the lock names; undefined when the lock is gone by now. */
function lockingProcess() {
  try {
    return Number(readFileSync(lockFile, 'utf8'))
  } catch (error) {
    if (error.code === 'ENOENT') return undefined
    throw error
  }
}

function alive(pid) {
  // 0 would ask for our own process group: a lock that names nobody is nobody's.
  if (!(pid > 0)) return false
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

/** Two commands at once in one checkout: the second waits for the first's installation. */
function withInstallLock(body) {
  mkdirSync(modules, { recursive: true })
  const draft = `${lockFile}.${process.pid}`
  let said = false
  for (;;) {
    try {
      // Linked with its contents: a lock that names nobody, left by a full disk or a kill, could never be taken over.
      writeFileSync(draft, String(process.pid))
      linkSync(draft, lockFile)
      break
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
      const pid = lockingProcess()
      if (pid === undefined) continue
      if (!alive(pid)) {
        rmSync(lockFile, { force: true })
        continue
      }
      if (!said) say(`waiting for the installation of process ${pid}`)
      said = true
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
    } finally {
      rmSync(draft, { force: true })
    }
  }
  try {
    body()
  } finally {
    rmSync(lockFile, { force: true })
  }
}

/** The pinned Node is linked against a library that the smallest Linux installations lack. */
function ensureNodeLibrary() {
  if (process.platform !== 'linux') return
  const folders = [
    '/usr/lib/x86_64-linux-gnu',
    '/usr/lib/aarch64-linux-gnu',
    '/usr/lib64',
    '/usr/lib',
    '/lib64',
    '/lib',
  ]
  if (folders.some((folder) => existsSync(join(folder, 'libatomic.so.1')))) return
  const known = spawnSync('ldconfig', ['-p'], {
    encoding: 'utf8',
    env: { ...env, PATH: `${env.PATH ?? ''}:/sbin:/usr/sbin` },
  })
  if (known.stdout?.includes('libatomic.so.1')) return
  const command = ['apt-get', 'install', '-y', '--no-install-recommends', 'libatomic1']
  if (process.getuid() !== 0 || !existsSync('/etc/debian_version')) {
    say(
      `libatomic.so.1 is missing, which Node needs. Install it (Debian: ${command.join(' ')}; Fedora: dnf install libatomic) and run this again.`,
    )
    process.exit(1)
  }
  say('installing the system library libatomic1, which Node needs')
  const quiet = { stdio: ['ignore', 'ignore', 'inherit'], env: { ...env, DEBIAN_FRONTEND: 'noninteractive' } }
  run('apt-get', ['update', '-qq'], quiet)
  run(command[0], [...command.slice(1), '-qq'], quiet)
}

function install() {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch}\n`)
  for (const file of ['package.json', 'pnpm-lock.yaml', 'pnpm-workspace.yaml', '.pnpmfile.cjs'])
    hash.update(readFileSync(join(root, file)))
  const stamp = hash.digest('hex')
  const current = () => existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp
  if (current()) return
  withInstallLock(() => {
    if (current()) return
    say('installing the packages of the lockfile (once; about half a minute)')
    const pnpm = manifest.packageManager.split('+')[0]
    const flags = [
      'install',
      '--frozen-lockfile',
      '--prefer-offline',
      '--reporter=append-only',
      '--config.confirmModulesPurge=false',
    ]
    // Exits of `run` skip `finally`: a lock left by a failed installation names a dead process and is taken over.
    run('npx', ['--yes', '--prefer-offline', pnpm, ...flags], {
      stdio: ['ignore', process.stderr, 'inherit'],
      env: { ...env, npm_config_update_notifier: 'false' },
    })
    writeFileSync(stampFile, stamp)
  })
}

function checkNode() {
  const result = spawnSync('node', ['-p', 'process.versions.node'], { env, shell: windows, encoding: 'utf8' })
  const version = result.stdout?.trim() ?? ''
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > 22 || (major === 22 && minor >= 18)) return
  say(
    `Node.js 22.18 or newer is needed and none is packaged for ${process.platform}-${process.arch} (found ${version || 'none'}).`,
  )
  say('Install one from your system or its vendor, put it first on PATH, and run this again.')
  process.exit(1)
}

const build = () =>
  run('turbo', ['run', 'build', '--output-logs=errors-only', '--log-order=grouped'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })

const commands = {
  setup() {
    build()
    script('setup.ts')
  },
  start(args) {
    commands.setup()
    script('demo/main.ts', args)
  },
  test(args) {
    commands.setup()
    run('vitest', ['run', ...args])
  },
  'test:microvm'(args) {
    commands.setup()
    script('test-microvm.ts', args)
  },
  /** The linter takes types across packages from what is built. */
  lint() {
    build()
    run('oxlint', ['--type-aware', '--deny-warnings'])
    run('oxfmt', ['--check'])
  },
  /** All that CI asks before the tests: lint, format, types of sources and tests, unused code, manifests, packages. */
  check() {
    commands.lint()
    run('tsc', ['-p', 'tsconfig.test.json'])
    run('sherif', [])
    run('knip', [])
    run('turbo', ['run', 'lint:pack', '--output-logs=errors-only'])
  },
  bench(args) {
    build()
    script('bench.ts', args)
  },
}

const [command, ...args] = process.argv.slice(2)
if (command === undefined) {
  say(`usage: node scripts/run.mjs <${Object.keys(commands).join('|')}|program> [arguments]`)
  process.exit(2)
}
ensureNodeLibrary()
install()
checkNode()
if (Object.hasOwn(commands, command)) commands[command](args)
else run(command, args)
