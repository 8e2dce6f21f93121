import type { Tool } from '@reve/harness'
import type { MicroVm } from '@reve/sandbox-microvm'
import * as v from 'valibot'
import { commandText, createStreamEnd } from './command-output.ts'
import { keptBytes, pathArgument } from './guest.ts'
import { createNetworkNotes, type NetworkNotes, withNetworkNotes } from './network-notes.ts'
import { type Clock, outputProgress, systemClock } from './output-progress.ts'
import { spill } from './spill.ts'
import { builtin } from './tool.ts'

const defaultTimeout = 120
/** So short that a number of milliseconds is seen to be one. */
const longestTimeout = 3600
const timeoutRange = `must be 1 to ${longestTimeout} seconds; start what takes longer in the background`

/** Enters the folder, then becomes the shell of the command. */
const inFolder = 'cd "$1" || exit; exec sh -lc "$2"'

/** `bash`: any command, in the guest's login shell. */
export function bashTool(vm: MicroVm, network: NetworkNotes = createNetworkNotes(), clock: Clock = systemClock): Tool {
  return builtin({
    name: 'bash',
    description:
      'Run a command in the microVM (sh -lc, in the working directory). Returns stdout, then stderr, then the exit code when it is not 0. Long output is shown by its head and tail and kept whole in a file. What runs in the background goes on when the command ends: npm start >/tmp/server.log 2>&1 &',
    replay: 'never',
    parameters: {
      command: { type: 'string', minLength: 1, description: 'The command: npm test 2>&1 | tail -n 50' },
      timeout: {
        type: 'integer',
        minimum: 1,
        maximum: longestTimeout,
        description: `Seconds after which it and all that it started is killed (default ${defaultTimeout})`,
      },
      cwd: { type: 'string', minLength: 1, description: 'Folder to run it in, relative to the working directory' },
    },
    required: ['command'],
    schema: v.object({
      command: v.pipe(v.string(), v.nonEmpty('must not be empty')),
      timeout: v.optional(
        v.pipe(
          v.number(timeoutRange),
          v.integer(timeoutRange),
          v.minValue(1, timeoutRange),
          v.maxValue(longestTimeout, timeoutRange),
        ),
        defaultTimeout,
      ),
      cwd: v.optional(v.pipe(v.string(), v.nonEmpty('must not be empty'))),
    }),
    run: async ({ command, timeout, cwd }, { signal, progress }) => {
      const mark = network.mark()
      const shown = outputProgress(progress, clock)
      const ends = { stdout: createStreamEnd(), stderr: createStreamEnd() }
      try {
        const result = await vm.exec({
          argv: cwd === undefined ? ['sh', '-lc', command] : ['sh', '-c', inFolder, 'sh', pathArgument(cwd), command],
          timeoutMs: timeout * 1000,
          signal,
          maxOutputBytes: keptBytes,
          onOutput: (stream, chunk) => {
            ends[stream].add(chunk)
            shown.add(stream, chunk)
          },
        })
        const text = await spill(vm, commandText(result, timeout, ends), signal)
        const notes = network.after(mark, text)
        return { content: withNetworkNotes(text, notes), ...(result.exitCode === 0 ? {} : { isError: true }) }
      } finally {
        shown.end()
      }
    },
  })
}
