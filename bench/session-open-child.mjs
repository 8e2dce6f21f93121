// Opens one session and says what that cost, as JSON: node session-open-child.mjs <ours|pi> <file> <module>.
// Plain JavaScript, so that no compiler of types fills the memory that is measured. Loading the module does not count.
import { pathToFileURL } from 'node:url'

const [side, file, module] = process.argv.slice(2)
const { openSession, SessionManager } = await import(pathToFileURL(module).href)

const cpu = process.cpuUsage()
const before = process.memoryUsage.rss()
const session = side === 'ours' ? await openSession(file) : SessionManager.open(file)
const { user, system } = process.cpuUsage(cpu)
const peak = process.resourceUsage().maxRSS * 1024

// After the measuring: the proof that both have the same conversation.
const leaf = side === 'ours' ? session.entry(session.leaf('main')) : session.getLeafEntry()
process.stdout.write(
  JSON.stringify({
    cpuMs: (user + system) / 1000,
    memoryMiB: (peak - before) / 2 ** 20,
    entries:
      side === 'ours' ? session.lines.filter(({ kind }) => kind === 'entry').length : session.getEntries().length,
    text: leaf.message.content[0].text,
  }),
)
await session.close?.()
