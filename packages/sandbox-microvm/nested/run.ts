/**
 * Runs the live checks of the microsandbox backend where nothing can boot it: in a machine around it that QEMU emulates
 * with AMD's virtualisation, so that Linux in there has a KVM that works. Slow and real. Needs Linux on x64 and the
 * programs that `hostPackages` names.
 *
 * A processor that is emulated in an emulated one now and then hangs, or has a program in it die of its own assertions. An
 * attempt in which a check failed is shown whole, and the machine is booted anew, at most twice: a check that is wrong fails
 * every time.
 *
 * Exit code 0: all checks hold.
 */
import { existsSync, readFileSync } from 'node:fs'
import { cp, link, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { hostPackages, prepareImage } from '../src/index.ts'
import { createQcow2 } from '../src/qcow2.ts'
import { IMAGE } from './image.ts'
import { type Boot, prepareBoot, runMachine } from './machine.ts'
import { writePayload } from './payload.ts'

const ATTEMPTS = 3
const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '5' }, keep: { type: 'boolean', default: false } },
})
const startedAt = performance.now()
const say = (text: string): void =>
  console.log(`${((performance.now() - startedAt) / 1000).toFixed(1).padStart(6)} s  ${text}`)

const { missing, command } = await hostPackages()
if (missing.some(({ when }) => when !== 'wanted')) {
  console.error(`the nested run needs ${missing.map(({ program }) => program).join(', ')}. Install with: ${command}`)
  process.exit(2)
}

const cacheDir = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'reve')
await mkdir(join(cacheDir, 'nested'), { recursive: true, mode: 0o700 })
const folder = await mkdtemp(join(cacheDir, 'nested', 'run-'))
const abort = new AbortController()
process.once('SIGINT', () => abort.abort())

/** Prints what was reported since the last look. */
function follow(path: string): { look(): void; failed(): number; passed(): number; code(): number | undefined } {
  let [read, passed, failed] = [0, 0, 0]
  let code: number | undefined
  return {
    look: () => {
      const lines = (existsSync(path) ? readFileSync(path, 'utf8') : '').split(/\r?\n/).slice(0, -1)
      for (const line of lines.slice(read)) {
        const exit = /^exit (\d+)$/.exec(line)?.[1]
        if (exit !== undefined) code = Number(exit)
        else if (line.startsWith('{')) {
          const check: { name: string; ok: boolean; ms: number; error?: string } = JSON.parse(line)
          if (check.ok) passed += 1
          else failed += 1
          say(
            `${check.ok ? 'ok    ' : 'FAILED'}  ${check.name} (${check.ms} ms)${check.error === undefined ? '' : `\n${check.error}`}`,
          )
        }
      }
      read = lines.length
    },
    passed: () => passed,
    failed: () => failed,
    code: () => code,
  }
}

/** One boot and all of its checks; 0 when all hold. */
async function attemptIn(place: string, boot: Boot, image: string): Promise<0 | 1> {
  const [root, console_, reported] = ['root.qcow2', 'console', 'report'].map((name) => join(place, name)) as [
    string,
    string,
    string,
  ]
  await createQcow2(root, image, 4 * 2 ** 30)
  const late = AbortSignal.timeout(Number(values.minutes) * 60_000)
  const stop = new AbortController()
  const report = follow(reported)
  const watch = setInterval(() => {
    report.look()
    // What fails first is whether anything boots in there: nothing else would tell more.
    if (report.passed() === 0 && report.failed() > 0) stop.abort()
  }, 500)
  await runMachine(
    { boot, root, payload: join(folder, 'payload.img'), console: console_, report: reported },
    AbortSignal.any([abort.signal, late, stop.signal]),
  )
  clearInterval(watch)
  report.look()
  if (late.aborted) say(`given up after ${values.minutes} minutes`)
  say(`${report.passed()} passed, ${report.failed()} failed`)
  if (report.code() === 0 && report.failed() === 0 && report.passed() > 0) return 0
  console.error(readFileSync(console_, 'utf8').split('\n').slice(-60).join('\n'))
  return 1
}

let status: 0 | 1 = 1
try {
  say('kernel and busybox of the machine around')
  const boot = await prepareBoot(cacheDir)
  say(`root file system ${IMAGE.ref} with ${IMAGE.packages.join(', ')}`)
  const image = await prepareImage(
    IMAGE,
    { cacheDir, runtimeDir: join(folder, 'run'), onEvent: (event) => event.type === 'notice' && say(event.text) },
    { signal: abort.signal },
  )
  say('disks')
  const payload = join(folder, 'payload')
  // The guest's guest has the same image: it finds it in its cache.
  const inside = join(payload, 'cache', 'images', image.id)
  await mkdir(inside, { recursive: true })
  await cp(dirname(image.path), inside, { recursive: true, filter: (path) => path !== image.path })
  await link(image.path, join(inside, basename(image.path)))
  await writePayload(join(folder, 'payload.img'), payload, boot.busybox)
  await rm(payload, { recursive: true })

  for (let attempt = 1; status !== 0 && attempt <= ATTEMPTS && !abort.signal.aborted; attempt++) {
    say(attempt === 1 ? 'the machine boots' : `attempt ${attempt} of ${ATTEMPTS}: the machine boots anew`)
    const place = join(folder, `attempt-${attempt}`)
    await mkdir(place)
    status = await attemptIn(place, boot, image.path)
  }
} finally {
  if (values.keep) say(`kept: ${folder}`)
  else await rm(folder, { recursive: true, force: true })
}
process.exit(status)
