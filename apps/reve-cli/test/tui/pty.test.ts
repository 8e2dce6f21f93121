import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { probeBackends } from '@reve/sandbox-microvm'
import { Terminal as Xterm } from '@xterm/headless'
import { describe, expect, onTestFinished, test } from 'vitest'
import { surroundings, vmHost } from '../../src/surroundings.ts'
import { agentFiles, folderWith, main } from '../run-cli.ts'
import { rowsOf, until } from './screen.ts'

const boots = (await probeBackends(vmHost(surroundings(process.env)))).some(({ ok }) => ok)
if (!boots) process.stderr.write('no microVM boots here: what the terminal does with one is not tested\n')

/** The real program on a terminal of its own. */
async function terminal(
  turns: string,
  options: { readonly env?: Readonly<Record<string, string>>; readonly args?: readonly string[] } = {},
) {
  const folder = await folderWith(agentFiles(turns))
  const { NO_COLOR: _, ...env } = process.env
  const pty = spawn(process.execPath, ['--conditions=@reve/source', main, ...(options.args ?? [])], {
    cwd: folder,
    cols: 80,
    rows: 24,
    env: { ...env, TERM: 'xterm-256color', ...options.env },
  })
  const xterm = new Xterm({ cols: 80, rows: 24, scrollback: 10_000, allowProposedApi: true })
  let bytes = ''
  pty.onData((data) => {
    bytes += data
    xterm.write(data)
  })
  // What the program asks, a terminal answers.
  xterm.onData((answer) => pty.write(answer))
  const ended = new Promise<{ readonly code: number; readonly signal: number | undefined }>((resolve) =>
    pty.onExit(({ exitCode, signal }) => resolve({ code: exitCode, signal })),
  )
  onTestFinished(async () => {
    pty.kill('SIGKILL')
    await ended
  })
  const all = (): string => rowsOf(xterm).join('\n')
  const shows = (text: string | RegExp): Promise<void> =>
    until(
      () => (typeof text === 'string' ? all().includes(text) : text.test(all())),
      all,
      `the screen shows ${String(text)}`,
    )
  return { folder, pty, all, shows, ended, bytes: () => bytes }
}

/** Without a program to boot a VM with: the agent refuses, and all else is there. */
const noVm = { REVE_PROGRAM_PATH: '/nowhere' }
const modesOff = ['\u001b[?2004l', '\u001b[<u', '\u001b[?25h', '\u001b[?7h']

describe('the real program', () => {
  test('is there at once, says why it cannot work, and leaves the terminal as it was', async () => {
    const { pty, shows, ended, bytes, all } = await terminal('- text: x\n', { env: noVm })
    await shows('⟩')
    await shows(/✗ .*(QEMU|qemu|microVM)/)
    pty.write('hello\r')
    await shows('the agent does not work here')
    pty.write('\u0015/quit\r')
    expect(await ended).toMatchObject({ code: 4 })
    for (const mode of modesOff) expect(bytes().slice(bytes().lastIndexOf('\u001b[?2026l') - 50)).toContain(mode)
    expect(all()).not.toContain('⟩ ')
  })

  test.each(['SIGTERM', 'SIGHUP', 'SIGINT'] as const)('is ended by %s in order', async (signal) => {
    const { pty, shows, ended, bytes } = await terminal('- text: x\n', { env: noVm })
    await shows('✗')
    pty.kill(signal)
    expect(await ended).toMatchObject({ code: expect.toSatisfy((code: number) => code === 4 || code === 130) })
    if (signal !== 'SIGHUP') for (const mode of modesOff) expect(bytes()).toContain(mode)
  })

  test('an editor has the terminal while it runs', async () => {
    const { pty, shows, folder } = await terminal('- text: x\n', {
      env: { ...noVm, EDITOR: './editor.sh', VISUAL: '' },
    })
    await writeFile(join(folder, 'editor.sh'), '#!/bin/sh\nprintf "in the editor: "; read line; echo "$line" >> "$1"\n')
    await chmod(join(folder, 'editor.sh'), 0o755)
    await shows('✗')
    pty.write('before ')
    await shows('⟩ before')
    pty.write('\u0007')
    await shows('in the editor:')
    pty.write('typed there\n')
    await shows('typed there')
    await shows(/⟩ before *\n? *typed there/)
  })

  test('is plain lines where the terminal is dumb', async () => {
    const { pty, shows, ended, bytes } = await terminal('- text: A plain answer.\n', { env: { TERM: 'dumb' } })
    await shows('type a prompt and press Enter')
    pty.write('hello\r')
    await shows('A plain answer.')
    pty.write('/quit\r')
    expect(await ended).toMatchObject({ code: 0 })
    expect(bytes()).not.toMatch(/\u001b\[(?!0?m)/)
  })
})

test.skipIf(!boots)(
  'a command of one’s own runs in the VM and the model gets to know; a tool of the model shows its output',
  async () => {
    const turns = `- calls: [{ name: bash, arguments: { command: "cat note; sleep 1; echo done" } }]
- text: All done.
`
    const { pty, shows, ended } = await terminal(turns)
    await shows('the sandbox is ready')
    pty.write('!echo from the guest > note; cat note; exit 3\r')
    await shows('│ (exit 3)')
    pty.write('!!sleep 100\r')
    await shows('esc ends it')
    pty.write('\u001b')
    await shows('│ (stopped)')
    pty.write('go\r')
    await shows('I ran a command in the VM')
    await shows('All done.')
    await shows(/▸ bash cat note.* ✓/)
    pty.write('\u0003')
    pty.write('\u0003')
    expect(await ended).toMatchObject({ code: 0 })
  },
)
