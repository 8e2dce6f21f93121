import { isReveError } from '@reve/base'
import { hostFingerprint } from '@reve/action-runner'
import { readGitCredentials, type GitCredential } from '@reve/git-bridge'
import { ComputerError, openComputer, serveHttp, type Computer } from '@reve/mcp-server'
import { configuration, ConfigurationError, strayVariables, type Configuration, type Flags } from '../environment.ts'
import { exitCode } from '../exit-codes.ts'
import type { Context } from '../run-command.ts'

/** `kc serve`: until a signal ends it. */
export async function serve(context: Context, command: Flags & { readonly json: boolean }): Promise<number> {
  const { env, note, result, version } = context
  const settings = configuration(env, command)
  for (const sentence of strayVariables(env)) note(`kc: WARNING: ${sentence}`)
  const gitCredentials = await credentialsOf(settings)
  await using computer = await openComputer({
    root: settings.root,
    identity: settings.identity,
    ...(gitCredentials === undefined ? {} : { gitCredentials }),
    minFreeBytes: settings.minFreeBytes,
    workDir: settings.workDir,
    hostFingerprint: hostFingerprint(),
    secrets: settings.firstSeat === undefined ? [] : [settings.firstSeat.token],
    ...(settings.actionUser === undefined ? {} : { actionUser: settings.actionUser }),
  })
  ensureFirstSeat(computer, settings)
  const server = await serveHttp(computer, {
    host: settings.host,
    port: settings.port,
    allowedHosts: settings.allowedHosts,
    version,
    onError: (message) => note(`kc: ${message}`),
  })
  const stopped = stopSignals(settings, server.close, note)
  sayListening(settings, server.url, computer.seats.list().length, note)
  if (command.json) result(JSON.stringify({ event: 'listening', url: server.url, pid: process.pid }))
  await stopped
  return exitCode.done
}

/** Reads the file again at each use, so that a token can be renewed; what is wrong with it now is said now. */
async function credentialsOf({
  gitCredentials: file,
}: Configuration): Promise<(() => Promise<readonly GitCredential[]>) | undefined> {
  if (file === undefined) return undefined
  try {
    await readGitCredentials(file)
  } catch (error) {
    if (!isReveError(error)) throw error
    const hint = error.hint === undefined ? {} : { hint: error.hint }
    throw new ConfigurationError('bad_configuration', `KC_GIT_CREDENTIALS: ${error.message}`, { cause: error, ...hint })
  }
  return () => readGitCredentials(file)
}

function ensureFirstSeat({ seats }: Computer, { firstSeat }: Configuration): void {
  if (firstSeat === undefined) return
  try {
    seats.ensure(firstSeat.name, firstSeat.token)
  } catch (error) {
    if (!(error instanceof ComputerError)) throw error
    throw new ConfigurationError('bad_configuration', `KC_SEAT_TOKEN or KC_SEAT_NAME: ${error.message}`, {
      cause: error,
    })
  }
}

/** Resolves when the server has drained after the first signal; the second one ends the process as it is. */
function stopSignals(
  settings: Configuration,
  close: (options: { readonly drainMs: number }) => Promise<void>,
  note: (text: string) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let asked = false
    const stop = (): void => {
      if (asked) process.exit(exitCode.interrupted)
      asked = true
      note(`stopping: calls in flight have ${settings.drainMs / 1000} s to end; a second signal ends at once`)
      close({ drainMs: settings.drainMs }).then(resolve, reject)
    }
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, stop)
  })
}

function sayListening(settings: Configuration, url: string, seats: number, note: (text: string) => void): void {
  note(`kc: the computer in ${settings.root} is at ${url}`)
  if (settings.actionUser === undefined) {
    note(
      `kc: WARNING: actions run as this very user (${process.getuid?.() === 0 ? 'root' : 'yours'}), who can read and write what you can; set KC_ACTION_USER to contain them`,
    )
  }
  if (!['127.0.0.1', '::1', 'localhost'].includes(settings.host)) {
    note(
      `kc: WARNING: ${settings.host} is not a loopback address: every machine that reaches it can try tokens, and they travel unencrypted`,
    )
  }
  if (seats === 0) note('kc: there is no seat yet, so nobody can call; kc seat create <name> makes one, also now')
  note('kc: client configuration:')
  note(
    JSON.stringify(
      { mcpServers: { kc: { type: 'http', url, headers: { Authorization: 'Bearer <token>' } } } },
      null,
      2,
    ),
  )
}
