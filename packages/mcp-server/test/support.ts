import { execFileSync } from 'node:child_process'
import { mkdtemp, readFile, realpath } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { initComputer, openComputer, serveHttp, type Computer, type HttpServer } from '../src/index.ts'

export const temporary = async (): Promise<string> => realpath(await mkdtemp(join(tmpdir(), 'computer-')))

export type Served = AsyncDisposable & {
  readonly computer: Computer
  readonly server: HttpServer
  readonly token: string
  readonly url: string
}

/** A computer of its own, served on a port of the system's choice, with one seat. */
export async function serve(
  options: {
    readonly root?: string
    readonly graceMs?: number
    readonly onError?: (message: string) => void
  } = {},
): Promise<Served> {
  const root = options.root ?? join(await temporary(), 'kc')
  await initComputer(root)
  const computer = await openComputer({
    root,
    identity: { name: 'Computer', email: 'computer@example.com' },
    hostFingerprint: 'test',
  })
  const { token } =
    computer.seats.list().length === 0 ? computer.seats.create('tester') : computer.seats.rekey('tester')
  const server = await serveHttp(computer, {
    host: '127.0.0.1',
    port: 0,
    version: '0.0.0',
    ...(options.graceMs === undefined ? {} : { graceMs: options.graceMs }),
    ...(options.onError === undefined ? {} : { onError: options.onError }),
  })
  return {
    computer,
    server,
    token,
    url: server.url,
    [Symbol.asyncDispose]: async () => {
      await server.close({ drainMs: 0 })
      await computer.close()
    },
  }
}

export type Answer = { readonly text: string; readonly isError: boolean }
export type Caller = AsyncDisposable & {
  readonly client: Client
  readonly call: (
    family: string,
    action: string,
    args?: Readonly<Record<string, unknown>>,
    options?: { readonly signal?: AbortSignal; readonly onprogress?: (progress: unknown) => void },
  ) => Promise<Answer>
}

/** The client that is out there, with this token. */
export async function connect(url: string, token: string): Promise<Caller> {
  const client = new Client({ name: 'test', version: '1' })
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${token}` } } }),
  )
  return {
    client,
    call: async (family, action, args = {}, options = {}) => {
      const result = await client.callTool({ name: family, arguments: { action, ...args } }, undefined, options)
      const content = Array.isArray(result.content) ? result.content : []
      return {
        text: content.map((part: { readonly text?: string }) => part.text ?? '').join('\n'),
        isError: result.isError === true,
      }
    },
    [Symbol.asyncDispose]: () => client.close(),
  }
}

/** The first 64 hex digits of an answer. */
export const treeIn = (text: string): string => /\b[0-9a-f]{64}\b/.exec(text)?.[0] ?? `no tree in: ${text}`

/** Runs git in a closed environment of its own. */
export const git = (cwd: string, ...args: readonly string[]): string =>
  execFileSync(
    'git',
    ['-c', 'user.name=T', '-c', 'user.email=t@example.com', '-c', 'init.defaultBranch=main', ...args],
    {
      cwd,
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], HOME: cwd, GIT_CONFIG_NOSYSTEM: '1' },
    },
  )

/** Waits until `probe` gives something; the test's own time is the limit. */
export async function until<T>(probe: () => T | undefined | Promise<T | undefined>): Promise<T> {
  for (;;) {
    const found = await probe()
    if (found !== undefined) return found
    await new Promise((done) => setTimeout(done, 10))
  }
}

/** A shell command that tells its process id in `file` and stays; and the id, once it is there. */
export const lingering = (file: string): readonly string[] => ['sh', '-c', `echo $$ >${file}; exec sleep 600`]
export const processIn = (file: string): Promise<number> =>
  until(async () => {
    const text = await readFile(file, 'utf8').catch(() => '')
    return text.endsWith('\n') ? Number(text) : undefined
  })
export const gone = (pid: number): Promise<true> =>
  until(() => {
    try {
      process.kill(pid, 0)
      return undefined
    } catch {
      return true
    }
  })
