import { rm } from 'node:fs/promises'
import { messageOf } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import { type QemuOptions, type QemuProcess, startQemu } from './process.ts'
import {
  dropTemplate,
  ensureTemplate,
  failuresOf,
  FAILURES,
  memoryOf,
  type TemplateParts,
  templateKey,
} from './template.ts'

/** A VM that goes on from a template; or why it has to be booted, and what to do when that boot works. */
export type Warm =
  | { readonly vm: QemuProcess }
  | { readonly vm?: never; readonly reason: string; blame(): Promise<void> }

/**
 * Starts QEMU from the template for machines of that shape, which is made first when there is none.
 *
 * @throws MicroVmError `aborted`; `boot_failed` for a disk that is in use.
 */
export async function startWarm(options: QemuOptions, parts: TemplateParts): Promise<Warm> {
  const { host, memoryFile, bootMs, progress } = parts
  let key: string | undefined
  try {
    key = await templateKey(parts)
    if ((await failuresOf(host, key)) >= FAILURES)
      throw new MicroVmError('image_failed', 'saved machines have failed here since this host booted')
    const { template, isNew } = await ensureTemplate(key, parts)
    const vm = await progress.stage('restore', `restore ${options.machine.name}`, async () => {
      const memory = isNew ? ({ path: memoryFile, use: 'private' } as const) : await memoryOf(template, parts)
      return startQemu({ ...options, machine: { ...options.machine, memory }, saved: template, bootMs })
    })
    return { vm }
  } catch (error) {
    if (options.signal?.aborted === true || isDiskInUse(error)) throw error
    // A lack of room, say, is not the template's fault.
    const blamed = error instanceof MicroVmError && error.code === 'boot_failed' ? key : undefined
    return {
      reason: messageOf(error),
      blame: async () => (blamed === undefined ? undefined : dropTemplate(host, blamed)),
    }
  } finally {
    // QEMU has it open; its name is of no more use.
    await rm(memoryFile, { force: true })
  }
}

/** Whether a QEMU did not start because another one has the disk: one of a dead owner goes within a moment. */
export const isDiskInUse = (error: unknown): boolean =>
  error instanceof MicroVmError && error.message.includes('Failed to get "write" lock')
