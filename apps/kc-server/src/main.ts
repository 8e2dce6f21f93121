import { readFileSync } from 'node:fs'
import { parseCommand, UsageError } from './arguments.ts'
import { helpText } from './help.ts'

// Only what every start needs is imported above: `kc --version` opens no database.

function version(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown'
}

async function dispatch(argv: readonly string[]): Promise<number> {
  const command = parseCommand(argv)
  switch (command.type) {
    case 'help':
      process.stdout.write(helpText(command.topic))
      return 0
    case 'version':
      process.stdout.write(`kc ${version()}\n`)
      return 0
    default: {
      const { runCommand } = await import('./run-command.ts')
      return runCommand(command, version())
    }
  }
}

// A reader that has gone (`kc help | head -1`) ends neither a command nor a server.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
}

try {
  process.exitCode = await dispatch(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  process.stderr.write(`kc: ${error.message}\ntry: kc ${error.topic ? `${error.topic} ` : ''}--help\n`)
  process.exitCode = 2
}
