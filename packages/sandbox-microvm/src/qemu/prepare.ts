import { readFile } from 'node:fs/promises'
import { requireHost } from '../host-packages.ts'
import { DEFAULT_SEARCH_PATH } from '../host-process.ts'
import { createProgress, type Progress } from '../progress.ts'
import type { ImageSpec, MicroVmHost } from '../spec.ts'
import type { AptHost } from './apt.ts'
import { ensureImage, findImage, type Image, resolveRoot } from './image.ts'
import { ensureKernel, findKernel, type Kernel } from './kernel.ts'

/** Who listens, and who may end it. */
export type PrepareOptions = { readonly progress?: Progress; readonly signal?: AbortSignal }

const aptHost = (host: MicroVmHost, signal: AbortSignal | undefined): AptHost & { readonly cacheDir: string } => ({
  cacheDir: host.cacheDir,
  searchPath: host.searchPath ?? DEFAULT_SEARCH_PATH,
  programEnv: host.programEnv ?? {},
  ...(signal === undefined ? {} : { signal }),
})

const progressOf = (host: MicroVmHost, options: PrepareOptions): Progress =>
  options.progress ?? createProgress(host.onEvent, () => performance.now())

/** The guest agent as it is shipped; `guest/build.sh` makes it. */
const guestAgent = (): Promise<Uint8Array> => readFile(new URL('../../assets/guest-agent-x86_64', import.meta.url))

/**
 * The kernel of all guests, from the cache or downloaded from this machine's own Debian mirror.
 *
 * @throws MicroVmError `image_failed`, `missing_program`, `unsupported_host`, `aborted`.
 */
export async function prepareKernel(host: MicroVmHost, options: PrepareOptions = {}): Promise<Kernel> {
  const agent = await guestAgent()
  const known = await findKernel(host.cacheDir, agent)
  if (known !== undefined) return known
  requireHost(host)
  return progressOf(host, options).stage('kernel', 'prepare the guest kernel', () =>
    ensureKernel({ ...aptHost(host, options.signal), agent }),
  )
}

/**
 * The root file system for `spec`, from the cache or built from this machine's own Debian mirror, which takes half a minute
 * to three. Callers in several processes build it once.
 *
 * @throws MicroVmError `bad_spec`, `image_failed`, `missing_program`, `unsupported_host`, `aborted`.
 */
export async function prepareImage(spec: ImageSpec, host: MicroVmHost, options: PrepareOptions = {}): Promise<Image> {
  const progress = progressOf(host, options)
  const root = resolveRoot(spec, (text) => progress.notice(text))
  const known = await findImage(root, host.cacheDir)
  if (known !== undefined) return known
  requireHost(host)
  const label = `build the image ${root.suite}${root.packages.length === 0 ? '' : ` with ${root.packages.length} packages`}`
  return progress.stage('image', label, (onLabel) => ensureImage(root, { ...aptHost(host, options.signal), onLabel }))
}
