import type { ExecResult, MicroVm } from '@reve/sandbox-microvm'

/** Most bytes of one stream that a tool keeps; what comes after is counted and dropped. */
export const keptBytes = 32 << 20

/** A script of ours that takes longer hangs. */
const scriptMs = 120_000

const utf8 = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true })

/** Bytes of a command's output as text; bytes that are not UTF-8 become U+FFFD. */
export const outputText = (bytes: Uint8Array): string => utf8.decode(bytes)

/** A path as a program's argument: never taken for an option. */
export function pathArgument(path: string): string {
  if (path === '.') return './'
  return path.startsWith('/') ? path : `./${path}`
}

export type GuestScriptOptions = {
  /** Absent: nothing stops it but its time. */
  readonly signal?: AbortSignal
  readonly stdin?: Uint8Array
  readonly maxOutputBytes?: number
  readonly timeoutMs?: number
  readonly onStdout?: (chunk: Uint8Array) => void
}

/** Runs a fixed script of ours in the guest; whatever a model wrote stands in `args`, never in the script's text. */
export function guestScript(
  vm: MicroVm,
  script: string,
  args: readonly string[],
  options: GuestScriptOptions,
): Promise<ExecResult> {
  const { onStdout } = options
  return vm.exec({
    argv: ['sh', '-c', script, 'reve', ...args],
    // Names and patterns are characters, whatever the image's own language is.
    env: { LC_ALL: 'C.UTF-8' },
    maxOutputBytes: options.maxOutputBytes ?? keptBytes,
    timeoutMs: options.timeoutMs ?? scriptMs,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
    ...(onStdout && { onOutput: (stream, chunk) => (stream === 'stdout' ? onStdout(chunk) : undefined) }),
  })
}

/** Why a script of ours did not do its work, in the words of its programs; undefined when it did. */
export function complaintOf(result: ExecResult): string | undefined {
  if (result.cancelled) return 'cancelled'
  if (result.timedOut) return 'it took too long and was stopped'
  if (result.exitCode === 0) return undefined
  return outputText(result.stderr).trim() || `it ended with exit code ${result.exitCode}`
}

/** Characters that show nothing, break a line, or change what stands around them; and what is not UTF-8. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\uFFFD]/u

/** A file's name, which may be any bytes, on one line: plain, or as the shell's `$'...'`, which bash takes back. */
export function showName(name: Uint8Array): string {
  const text = outputText(name)
  if (!unprintable.test(text)) return text
  const quoted = Array.from(name, (byte) => {
    if (byte === 0x0a) return '\\n'
    if (byte === 0x27 || byte === 0x5c) return `\\${String.fromCharCode(byte)}`
    return byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`
  })
  return `$'${quoted.join('')}'`
}
