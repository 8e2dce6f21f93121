/**
 * Runs the live checks of the microsandbox backend where nothing can boot it: in a machine around it that QEMU emulates
 * with AMD's virtualisation, so that Linux in there has a KVM that works. Slow and real. Needs Linux on x64 and the
 * programs that `hostPackages` names.
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
import { prepareBoot, runMachine } from './machine.ts'
import { writePayload } from './payload.ts'

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '15' }, keep: { type: 'boolean', default: false } },
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
const timer = setTimeout(
  () => {
    say(`given up after ${values.minutes} minutes`)
    abort.abort()
  },
  Number(values.minutes) * 60_000,
)

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

let status = 1
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
  const root = join(folder, 'root.qcow2')
  await createQcow2(root, image.path, 4 * 2 ** 30)

  say('the machine boots')
  const report = follow(join(folder, 'report'))
  const watch = setInterval(() => report.look(), 500)
  await runMachine(
    {
      boot,
      root,
      payload: join(folder, 'payload.img'),
      console: join(folder, 'console'),
      report: join(folder, 'report'),
    },
    abort.signal,
  )
  clearInterval(watch)
  report.look()
  say(`${report.passed()} passed, ${report.failed()} failed`)
  status = report.code() === 0 && report.failed() === 0 && report.passed() > 0 ? 0 : 1
  if (status !== 0) console.error(readFileSync(join(folder, 'console'), 'utf8').split('\n').slice(-60).join('\n'))
} finally {
  clearTimeout(timer)
  if (values.keep) say(`kept: ${folder}`)
  else await rm(folder, { recursive: true, force: true })
}
process.exit(status)
