import { spawn } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { DemoFailure, dim, heading, must, say } from './show.ts'

const identity = ['-c', 'user.name=Demo', '-c', 'user.email=demo@example.com', '-c', 'init.defaultBranch=main'] as const

/** kc's main job: an MCP client imports a repository, edits, branches, merges, tests and exports it. */
export async function kcDemo(folder: string): Promise<void> {
  heading('kc: a computer over MCP')
  const root = join(folder, 'computer')
  const env = { KC_ROOT: root }
  await must(['kc', 'init'], { cwd: folder, env })
  const token = (await must(['kc', 'seat', 'create', 'demo'], { cwd: folder, env, quiet: true })).trim()
  say(`\n$ kc seat create demo\n${token.slice(0, 6)}… ${dim('(the token, shown once; shortened here)')}`)
  const repository = await makeRepository(join(folder, 'project'))

  const server = spawn('kc', ['serve', '--port', '0', '--json'], {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = new Promise<number | null>((resolve) => {
    server.on('exit', resolve)
    // A server that could not even be started has ended as well.
    server.on('error', () => resolve(null))
  })
  try {
    const url = await Promise.race([
      listening(server.stdout),
      ended.then((code) => Promise.reject(new DemoFailure(`kc serve ended with ${code}`))),
    ])
    say(`\n$ kc serve\n${dim(`(listening on ${url}; an MCP client with the token connects)`)}`)
    await useComputer(url, token, repository)
  } finally {
    server.kill('SIGTERM')
    await ended
  }
}

async function makeRepository(folder: string): Promise<string> {
  await mkdir(folder)
  await writeFile(join(folder, 'greet.js'), 'export const greet = (name) => `Hello, ${name}`\n')
  await writeFile(
    join(folder, 'greet.test.js'),
    "import test from 'node:test'\nimport assert from 'node:assert'\nimport { greet } from './greet.js'\n\ntest('greets', () => assert.match(greet('Ada'), /Ada/))\n",
  )
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }\n')
  for (const words of [
    ['init', '--quiet'],
    ['add', '.'],
    ['commit', '--quiet', '-m', 'a greeting'],
  ]) {
    await must(['git', ...identity, ...words], { cwd: folder, quiet: true })
  }
  return folder
}

/** The address from the first line that `kc serve --json` prints. */
async function listening(stdout: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: stdout })) {
    const event: unknown = JSON.parse(line)
    if (
      typeof event === 'object' &&
      event !== null &&
      'event' in event &&
      event.event === 'listening' &&
      'url' in event
    ) {
      return String(event.url)
    }
  }
  throw new DemoFailure('kc serve did not say where it listens')
}

async function useComputer(url: string, token: string, repository: string): Promise<void> {
  const client = new Client({ name: 'demo', version: '1' })
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { authorization: `Bearer ${token}` } },
  })
  await client.connect(transport)
  /** One call: shown as `family.action`, its text returned. */
  const call = async (family: string, action: string, args: Readonly<Record<string, unknown>>): Promise<string> => {
    say(`\n${dim('→')} ${family}.${action} ${dim(JSON.stringify(args).slice(0, 140))}`)
    const result = await client.callTool({ name: family, arguments: { action, ...args } })
    const content = Array.isArray(result.content) ? result.content : []
    const text = content
      .map((part: { readonly type: string; readonly text?: string }) => part.text ?? `(${part.type})`)
      .join('\n')
    say(text.length > 700 ? `${text.slice(0, 700)}…` : text)
    if (result.isError === true) throw new DemoFailure(`${family}.${action} was refused`)
    return text
  }
  /** The first tree id in a result's text. */
  const treeOf = (text: string): string => {
    const id = /\b[0-9a-f]{64}\b/.exec(text)?.[0]
    if (id === undefined) throw new DemoFailure('no tree id in the result')
    return id
  }

  await call('git', 'import', { src: repository, name: 'project' })
  const main = treeOf(await call('ref', 'get', { name: 'project' }))
  await call('fs', 'read', { tree: 'project', path: 'greet.js' })
  await call('snapshot', 'create', { name: 'before', note: 'as imported' })
  await call('branch', 'create', { name: 'politer', from_ref: 'project' })
  const edited = treeOf(
    await call('fs', 'edit', { tree: 'politer', path: 'greet.js', old: 'Hello,', new: 'Good evening,' }),
  )
  await call('ref', 'move', { name: 'politer', expected_tree: main, new_tree: edited, note: 'a politer greeting' })
  await call('fs', 'diff', { a: 'project', b: 'politer' })
  const tests = { tree: 'politer', argv: [process.execPath, '--test'] }
  await call('exec', 'run', tests)
  say(dim('(the same action again: answered from the cache)'))
  await call('exec', 'run', tests)
  await call('branch', 'merge', { into: 'project', from_ref: 'politer' })
  await call('git', 'export', {
    name: 'project',
    tree: 'project',
    branch: 'politer',
    message: 'A politer greeting',
    author: 'Demo <demo@example.com>',
  })
  await call('git', 'push', { name: 'project', branch: 'politer' })
  await call('computer', 'events', { n: 3 })
  await client.close()
  await must(['git', 'log', '--oneline', 'politer'], { cwd: repository })
}
