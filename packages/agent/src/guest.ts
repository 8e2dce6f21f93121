import type { ExecResult, MicroVm } from '@reve/sandbox-microvm'

/** Most bytes of one stream that a tool keeps; what comes after is counted and dropped. */
export const keptBytes = 32 << 20

const utf8 = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true })

/** Bytes of a command's output as text; bytes that are not UTF-8 become U+FFFD. */
export const outputText = (bytes: Uint8Array): string => utf8.decode(bytes)

/** A path as a program's argument: never taken for an option. */
export const pathArgument = (path: string): string => (path.startsWith('/') ? path : `./${path}`)

/** Runs a fixed script of ours in the guest; whatever a model wrote stands in `args`, never in the script's text. */
export function guestScript(
  vm: MicroVm,
  script: string,
  args: readonly string[],
  options: { readonly signal: AbortSignal; readonly stdin?: Uint8Array; readonly maxOutputBytes?: number },
): Promise<ExecResult> {
  return vm.exec({
    argv: ['sh', '-c', script, 'reve', ...args],
    signal: options.signal,
    maxOutputBytes: options.maxOutputBytes ?? keptBytes,
    ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
  })
}
