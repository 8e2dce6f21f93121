import { isReveError } from '@reve/base'
import type { MicroVm } from '@reve/sandbox-microvm'
import { guestScript, outputText } from './guest.ts'

/** Characters of a tool's result that the model sees; a longer one is saved in the VM and shown by head and tail. */
export const shownCharacters = 24_000

/** How long saving may take once the call was cancelled: its result waits for it. */
const lateMs = 4000

/**
 * Saves stdin under a new name and prints it. The disk of the VM outlives the VM's stop, so older ones go: after a week, and
 * when there are too many or too much of them.
 */
const saveScript = `
umask 077
t=$(mktemp /tmp/reve-tool-output-XXXXXX) && cat >"$t" && mv "$t" "$t.log" || { rm -f "$t"; exit 1; }
find /tmp -maxdepth 1 -name 'reve-tool-output-*' -mtime +6 -exec rm -f {} + 2>/dev/null
ls -lt /tmp/reve-tool-output-*.log | awk -v most="$1" -v bytes="$2" \\
  '{ sum += $5; if (NR > 1 && (NR > most || sum > bytes)) print $NF }' | xargs rm -f
echo "$t.log"`

/** How much of saved output a VM keeps, the newest first; the newest itself always. */
export type SpillLimits = { readonly files: number; readonly bytes: number }
const defaults: SpillLimits = { files: 100, bytes: 512 << 20 }

/**
 * A tool's text, shortened for the model. The whole of it is saved on the VM's disk, so that the model can read on.
 * Never splits a character.
 */
export async function spill(
  vm: MicroVm,
  text: string,
  signal: AbortSignal,
  limits: SpillLimits = defaults,
): Promise<string> {
  if (text.length <= shownCharacters) return text
  const path = await save(vm, text, signal, limits)
  const half = shownCharacters / 2
  const head = text.slice(0, headEnd(text, half))
  const tail = text.slice(tailStart(text, text.length - half))
  const cut = text.slice(head.length, text.length - tail.length)
  const lines = cut.split('\n').length - 1
  const where = path
    ? `The full output is in ${path} (see it with read or grep).`
    : 'The full output could not be saved in the VM.'
  return `${head}\n… ${cut.length} characters (${lines} ${lines === 1 ? 'line' : 'lines'}) are left out here. ${where} …\n${tail}`
}

/** A VM that is gone by now must not take the result with it: what is shown is still true. */
async function save(vm: MicroVm, text: string, signal: AbortSignal, limits: SpillLimits): Promise<string | undefined> {
  const stdin = new TextEncoder().encode(text)
  const patience = signal.aborted ? { timeoutMs: lateMs } : { signal }
  try {
    const args = [String(limits.files), String(limits.bytes)]
    const saved = await guestScript(vm, saveScript, args, { ...patience, stdin })
    return saved.exitCode === 0 ? outputText(saved.stdout).trim() : undefined
  } catch (error) {
    if (isReveError(error)) return undefined
    throw error
  }
}

/** How far a cut moves to fall between two lines. */
const snap = 400

/** At or shortly before `at`: after a line's end, else between two characters. */
function headEnd(text: string, at: number): number {
  const line = text.lastIndexOf('\n', at - 1)
  if (line >= at - snap) return line
  return isLowSurrogate(text, at) ? at - 1 : at
}

/** At or shortly after `at`, in the same way. */
function tailStart(text: string, at: number): number {
  const line = text.indexOf('\n', at - 1)
  if (line >= 0 && line < at + snap && line + 1 < text.length) return line + 1
  return isLowSurrogate(text, at) ? at + 1 : at
}

const isLowSurrogate = (text: string, at: number): boolean => /[\uDC00-\uDFFF]/.test(text.charAt(at))
