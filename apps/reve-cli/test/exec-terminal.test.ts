import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { probeBackends } from '@reve/sandbox-microvm'
import { describe, expect, test } from 'vitest'
import { surroundings } from '../src/surroundings.ts'
import { agentFiles, folderWith, main } from './run-cli.ts'

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null'], { stdio: 'ignore' }).status === 0
const [backend] = (await probeBackends(surroundings(process.env))).filter(({ ok }) => ok)
if (!hasScript || backend === undefined)
  process.stderr.write('no terminal of script (util-linux) or no microVM here: reve exec on a terminal is not tested\n')

/**
 * What a terminal shows of a shell script that runs `$REVE`.
 *
 * @param typed goes in when `after` is there to be seen.
 */
async function onTerminal(script: string, { after, typed }: { readonly after?: string; readonly typed?: string } = {}) {
  const folder = await folderWith({ ...agentFiles(''), 'workspace/.keep': '', 'try.sh': script })
  const child = spawn('script', ['-qec', 'sh ./try.sh', '/dev/null'], {
    cwd: folder,
    env: { ...process.env, TERM: 'xterm', REVE: `${process.execPath} --conditions=@reve/source ${main}` },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  let shown = ''
  let waits = typed !== undefined
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    shown += chunk
    if (!waits || after === undefined || !shown.includes(after)) return
    waits = false
    child.stdin.write(typed)
  })
  await once(child, 'close')
  return shown
}

/** A terminal as a shell wants it: lines are edited, typed text is seen, Ctrl-C is a signal. */
const usable = (shown: string): void => {
  for (const mode of ['icanon', 'echo', 'isig', 'opost']) expect(shown).toMatch(new RegExp(`(?<!-)\\b${mode}\\b`))
}

describe.skipIf(!hasScript || backend === undefined)('reve exec on a terminal', () => {
  test('gives the command one, of its size; what is typed gets there; afterwards it is as it was', async () => {
    const shown = await onTerminal(
      `stty rows 33 cols 91
$REVE exec 'test -t 0 && test -t 1 && echo "a terminal of $(stty size)"; read -r line; echo "got <$line>"; exit 7'
echo "code $?"
stty -a
`,
      { after: 'a terminal of', typed: 'three words typed\r' },
    )
    expect(shown).toContain('a terminal of 33 91\r\n')
    expect(shown).toContain('got <three words typed>\r\n')
    expect(shown).toContain('code 7\r\n')
    usable(shown)
  })

  test('a line feed of a command that draws by itself goes down and not back', async () => {
    const shown = await onTerminal(`$REVE exec 'stty raw; printf "[one\\ntwo]"; sleep 1'\nstty -a\n`)
    expect(shown).toContain('[one\ntwo]')
    usable(shown)
  })

  test.each(['TERM', 'HUP', 'INT'])(
    'a SIG%s from outside ends the command, and leaves the terminal usable',
    async (signal) => {
      const shown = await onTerminal(
        `(until [ -e workspace/began ]; do sleep 0.1; done; kill -${signal} "$(cat pid)") &
sh -c 'echo $$ >pid; exec $REVE exec "touch began; sleep 300"'
echo "code $?"
stty -a
`,
      )
      expect(shown).toContain('code 130\r\n')
      usable(shown)
    },
  )

  test('Ctrl-C that is typed is the command’s own', async () => {
    const shown = await onTerminal(
      `$REVE exec 'trap "echo caught; exit 3" INT; echo waiting; while :; do sleep 0.1; done'
echo "code $?"
stty -a
`,
      { after: 'waiting', typed: '\u0003' },
    )
    expect(shown).toContain('caught\r\n')
    expect(shown).toContain('code 3\r\n')
    usable(shown)
  })
})
