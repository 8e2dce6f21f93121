import { randomBytes } from 'node:crypto'
import { isReveError } from '@reve/base'
import type { MicroVm } from '@reve/sandbox-microvm'
import { guestScript } from './guest.ts'

/** Characters of a tool's result that the model sees; a longer one is saved in the VM and shown by head and tail. */
export const shownCharacters = 24_000

/**
 * A tool's text, shortened for the model. The whole of it is saved on the VM's disk, so that the model can read on.
 * Never splits a character.
 */
export async function spill(vm: MicroVm, text: string, signal: AbortSignal): Promise<string> {
  if (text.length <= shownCharacters) return text
  const path = `/tmp/reve-tool-output-${randomBytes(6).toString('hex')}.log`
  const saved = await save(vm, path, text, signal)
  const half = shownCharacters / 2
  const head = text.slice(0, wholeBefore(text, half))
  const tail = text.slice(wholeAfter(text, text.length - half))
  const cut = text.length - head.length - tail.length
  const where = saved ? `Full output: ${path}` : 'The full output could not be saved in the VM.'
  return `${head}\n… ${cut} characters are left out here. ${where} …\n${tail}`
}

/** A VM that is gone by now must not take the result with it: what is shown is still true. */
async function save(vm: MicroVm, path: string, text: string, signal: AbortSignal): Promise<boolean> {
  const stdin = new TextEncoder().encode(text)
  try {
    return (await guestScript(vm, 'umask 077 && cat >"$1"', [path], { signal, stdin })).exitCode === 0
  } catch (error) {
    if (isReveError(error)) return false
    throw error
  }
}

const isLowSurrogate = (text: string, at: number): boolean => /[\uDC00-\uDFFF]/.test(text.charAt(at))
const wholeBefore = (text: string, at: number): number => (isLowSurrogate(text, at) ? at - 1 : at)
const wholeAfter = (text: string, at: number): number => (isLowSurrogate(text, at) ? at + 1 : at)
