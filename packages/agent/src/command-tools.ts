import type { Tool, ToolOutput } from '@reve/harness'
import type { ExecResult, MicroVm } from '@reve/sandbox-microvm'
import * as v from 'valibot'
import { guestScript, keptBytes, outputText, pathArgument } from './guest.ts'
import { createNetworkNotes, type NetworkNotes, withNetworkNotes } from './network-notes.ts'
import { spill } from './spill.ts'
import { builtin, failed } from './tool.ts'

const defaultTimeoutSeconds = 120
const longestTimeoutSeconds = 86_400

/** `bash`: any command, in the guest's login shell. */
export function bashTool(vm: MicroVm, network: NetworkNotes = createNetworkNotes()): Tool {
  return builtin({
    name: 'bash',
    description:
      'Run a command in the microVM (sh -lc, working directory /workspace). Returns its output and its exit code when it is not 0.',
    replay: 'never',
    parameters: {
      command: { type: 'string', description: 'The command' },
      timeout_seconds: {
        type: 'integer',
        minimum: 1,
        maximum: longestTimeoutSeconds,
        description: `Seconds after which it is killed (default ${defaultTimeoutSeconds})`,
      },
    },
    required: ['command'],
    schema: v.object({
      command: v.string(),
      timeout_seconds: v.optional(
        v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(longestTimeoutSeconds)),
        defaultTimeoutSeconds,
      ),
    }),
    run: async ({ command, timeout_seconds }, { signal }) => {
      const mark = network.mark()
      const result = await vm.exec({
        argv: ['sh', '-lc', command],
        timeoutMs: timeout_seconds * 1000,
        signal,
        maxOutputBytes: keptBytes,
      })
      const text = await spill(
        vm,
        commandText(result, timeout_seconds),
        signal.aborted ? AbortSignal.timeout(5000) : signal,
      )
      const notes = network.after(mark, text)
      return { content: withNetworkNotes(text, notes), ...(result.exitCode === 0 ? {} : { isError: true }) }
    },
  })
}

/** A command's outcome as the model reads it: stdout, stderr, then what is not as usual. */
export function commandText(result: ExecResult, timeoutSeconds?: number): string {
  const parts = [outputText(result.stdout).trimEnd(), outputText(result.stderr).trimEnd()].filter((part) => part !== '')
  const dropped = result.stdoutBytes - result.stdout.length + (result.stderrBytes - result.stderr.length)
  if (dropped > 0) parts.push(`(${dropped} more bytes of output were not kept)`)
  if (result.timedOut) {
    const left = result.leftRunning.length > 0 ? `; still running and killed: ${result.leftRunning.join(', ')}` : ''
    parts.push(`(timed out after ${timeoutSeconds ?? '?'} s${left})`)
  } else if (result.cancelled) parts.push('(cancelled: the command was killed)')
  else if (result.exitCode !== 0) parts.push(`(exit ${result.exitCode})`)
  return parts.join('\n') || '(no output)'
}

/** `ls`: a folder's entries. */
export function lsTool(vm: MicroVm): Tool {
  return searcher(vm, {
    name: 'ls',
    description: 'List a folder (ls -la).',
    parameters: { path: { type: 'string', description: 'Folder (default: the working directory)' } },
    required: [],
    schema: v.object({ path: v.optional(v.string(), '.') }),
    script: 'ls -la "$1"',
    args: ({ path }) => [pathArgument(path)],
  })
}

/** `glob`: paths that match a pattern. */
export function globTool(vm: MicroVm): Tool {
  return searcher(vm, {
    name: 'glob',
    description: 'Find files by a glob pattern such as "*.ts" or "src/**/*.py".',
    parameters: { pattern: { type: 'string', description: 'The pattern' } },
    required: ['pattern'],
    schema: v.object({ pattern: v.string() }),
    script: `
for fd in fd fdfind; do
  if command -v "$fd" >/dev/null; then
    case $1 in */*) exec "$fd" --hidden --exclude .git --full-path --glob "**/$1" .;; esac
    exec "$fd" --hidden --exclude .git --glob -- "$1" .
  fi
done
case $1 in */*) exec find . -path ./.git -prune -o -path "./$1" -print;; esac
exec find . -path ./.git -prune -o -name "$1" -print`,
    args: ({ pattern }) => [pattern],
  })
}

/** `grep`: lines that match a regular expression. */
export function grepTool(vm: MicroVm): Tool {
  return searcher(vm, {
    name: 'grep',
    description: 'Search file contents by a regular expression. Shows path:line:text.',
    parameters: {
      pattern: { type: 'string', description: 'The regular expression' },
      path: { type: 'string', description: 'File or folder (default: the working directory)' },
    },
    required: ['pattern'],
    schema: v.object({ pattern: v.string(), path: v.optional(v.string(), '.') }),
    script: `
if command -v rg >/dev/null; then exec rg --no-config -n --no-heading --color never -e "$1" -- "$2"; fi
exec grep -rnIE --exclude-dir=.git -e "$1" -- "$2"`,
    args: ({ pattern, path }) => [pattern, pathArgument(path)],
  })
}

function searcher<Schema extends v.GenericSchema>(
  vm: MicroVm,
  tool: {
    readonly name: string
    readonly description: string
    readonly parameters: Parameters<typeof builtin>[0]['parameters']
    readonly required: readonly string[]
    readonly schema: Schema
    readonly script: string
    readonly args: (args: v.InferOutput<Schema>) => readonly string[]
  },
): Tool {
  return builtin({
    ...tool,
    replay: 'safe',
    run: async (args, { signal }): Promise<ToolOutput> => {
      const result = await guestScript(vm, tool.script, tool.args(args), { signal })
      const found = outputText(result.stdout).trimEnd()
      if (found !== '') return { content: await spill(vm, found, signal) }
      const complaint = outputText(result.stderr).trim()
      return complaint === '' ? { content: '(nothing found)' } : failed(complaint)
    },
  })
}
