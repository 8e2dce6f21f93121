import { checks } from './checks.ts'
import { makeWorld } from './world.ts'

/** One line for each check, as it ends: the machine outside prints it. */
const say = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`)

const { seen, authority } = await makeWorld()
let failed = 0
for (const { name, run } of checks(seen, authority)) {
  const startedAt = performance.now()
  try {
    await run()
    say({ name, ok: true, ms: Math.round(performance.now() - startedAt) })
  } catch (error) {
    failed += 1
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
    say({ name, ok: false, ms: Math.round(performance.now() - startedAt), error: text })
  }
}
process.exit(failed === 0 ? 0 : 1)
