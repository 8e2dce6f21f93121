import { readFileSync } from 'node:fs'
import { parseCommand, UsageError, type Command } from './arguments.ts'
import { helpText } from './help.ts'
import { guardStreams } from './standard-streams.ts'

// Only what every start needs is imported above: `reve --version` loads neither an agent nor a VM.

async function dispatch(command: Command, unread: AbortSignal): Promise<number> {
  switch (command.type) {
    case 'help':
      process.stdout.write(helpText(command.topic))
      return 0
    case 'version':
      process.stdout.write(`reve ${version()}\n`)
      return 0
    default: {
      const { runCommand } = await import('./run-command.ts')
      return runCommand(command, unread)
    }
  }
}

function version(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown'
}

const unread = guardStreams()
try {
  process.exitCode = await dispatch(parseCommand(process.argv.slice(2)), unread)
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  process.stderr.write(`reve: ${error.message}\ntry: reve ${error.topic ? `${error.topic} ` : ''}--help\n`)
  process.exitCode = 2
}
