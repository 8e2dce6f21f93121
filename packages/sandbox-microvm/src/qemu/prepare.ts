import { readFile } from 'node:fs/promises'
import { MicroVmError } from '../errors.ts'
import { missingFor, requireHost } from '../host-packages.ts'
import { DEFAULT_SEARCH_PATH } from '../host-process.ts'
import { ensureLocal, ensurePulled, type ImageHost } from '../images/ensure.ts'
import { DEFAULT_LIMITS, type ImageLimits } from '../images/layers.ts'
import {
  checkPackages,
  parseImageReference,
  printRegistryReference,
  type RegistryReference,
} from '../images/reference.ts'
import { UnavailableError } from '../images/registry.ts'
import { imagePath, readRecord, readRef } from '../images/store.ts'
import { createProgress, type Progress } from '../progress.ts'
import type { ImageSpec, MicroVmHost } from '../spec.ts'
import type { AptHost } from './apt.ts'
import { buildImage, findImage, type Image, type Root } from './image.ts'
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
  requireHost(host, 'kernel')
  return progressOf(host, options).stage('kernel', 'prepare the guest kernel', () =>
    ensureKernel({ ...aptHost(host, options.signal), agent }),
  )
}

/** How an image is prepared, besides who listens. */
export type PrepareImageOptions = PrepareOptions & {
  /** Asks the registry even if the cache has the image: its tag may stand for another one by now. */
  readonly refresh?: boolean
  readonly limits?: Partial<ImageLimits>
  /** Milliseconds before the first new try of a request, doubled for each more; default 500. */
  readonly retryMs?: number
  /** Milliseconds without a byte after which an answer is given up; default 30,000. */
  readonly stallMs?: number
}

/**
 * The root file system for `spec`: from the cache, pulled from a registry, read from an archive or a folder, or built from
 * the packages of this machine's own Debian mirror, which takes half a minute to three. Callers in several processes make
 * it once. Packages are in an image that is built; on another one they are installed by its own package manager at the
 * first start of each disk.
 *
 * @throws MicroVmError `bad_spec`, `image_failed`, `missing_program`, `unsupported_host`, `aborted`.
 */
export async function prepareImage(
  spec: ImageSpec,
  host: MicroVmHost,
  options: PrepareImageOptions = {},
): Promise<Image> {
  const progress = progressOf(host, options)
  const source = parseImageReference(spec.ref)
  const packages = checkPackages(spec.packages)
  switch (source.kind) {
    case 'debootstrap':
      return built({ suite: source.suite, packages }, host, options, progress)
    case 'debian': {
      const root = { suite: source.suite, packages }
      if (packages.length > 0 && canBuild(host)) {
        progress.notice(
          `${spec.ref} is built from Debian's packages as debootstrap:${source.suite}, with those of the sandbox in it`,
        )
        return built(root, host, options, progress)
      }
      try {
        return await pulled(source.reference, spec, packages, host, options, progress)
      } catch (error) {
        if (!(error instanceof UnavailableError)) throw error
        progress.notice(
          `${error.reason}, so ${spec.ref} is built from Debian's packages as debootstrap:${source.suite}`,
        )
        return built(root, host, options, progress)
      }
    }
    case 'registry':
      return pulled(source.reference, spec, packages, host, options, progress)
    case 'oci-archive':
    case 'docker-archive':
    case 'oci':
    case 'tar':
    case 'dir': {
      const make = (onLabel: (label: string) => void): Promise<string> =>
        ensureLocal(spec.ref, source, imageHost(host, options, onLabel))
      return imported(spec, packages, host, await progress.stage('image', `prepare the image ${spec.ref}`, make))
    }
    default:
      return source satisfies never
  }
}

async function built(root: Root, host: MicroVmHost, options: PrepareOptions, progress: Progress): Promise<Image> {
  const known = await findImage(root, host.cacheDir)
  if (known !== undefined) return known
  requireHost(host, 'image')
  const label = `build the image ${root.suite}${root.packages.length === 0 ? '' : ` with ${root.packages.length} packages`}`
  return progress.stage('image', label, (onLabel) => buildImage(root, { ...aptHost(host, options.signal), onLabel }))
}

async function pulled(
  reference: RegistryReference,
  spec: ImageSpec,
  packages: readonly string[],
  host: MicroVmHost,
  options: PrepareImageOptions,
  progress: Progress,
): Promise<Image> {
  const name = printRegistryReference(reference)
  const known = options.refresh === true ? undefined : await readRef(host.cacheDir, name)
  const id =
    known?.image ??
    (await progress.stage('image', `pull the image ${name}`, (onLabel) =>
      ensurePulled(reference, imageHost(host, options, onLabel), {
        ...(options.refresh === undefined ? {} : { refresh: options.refresh }),
      }),
    ))
  return imported(spec, packages, host, id)
}

/** An image that was not built for these packages: it has to have a package manager that gets them. */
async function imported(spec: ImageSpec, packages: readonly string[], host: MicroVmHost, id: string): Promise<Image> {
  const distribution = (await readRecord(host.cacheDir, id))?.distribution
  if (packages.length > 0 && distribution?.apt !== true)
    throw new MicroVmError(
      'bad_spec',
      `image "${spec.ref}" ${distribution?.id ? `is ${distribution.id}` : 'has no apt'}, and packages are only installed with apt, on Debian, Ubuntu and those made from them: set provision = false in sandbox.lua, and install what is needed with bootstrap commands or choose an image that has it`,
    )
  return { id, path: imagePath(host.cacheDir, id) }
}

const imageHost = (host: MicroVmHost, options: PrepareImageOptions, onLabel: (label: string) => void): ImageHost => ({
  cacheDir: host.cacheDir,
  limits: { ...DEFAULT_LIMITS, ...options.limits },
  onLabel,
  ...(host.fetch === undefined ? {} : { fetch: host.fetch }),
  ...(host.registryCredentials === undefined ? {} : { credentials: host.registryCredentials }),
  ...(options.signal === undefined ? {} : { signal: options.signal }),
  ...(options.retryMs === undefined ? {} : { retryMs: options.retryMs }),
  ...(options.stallMs === undefined ? {} : { stallMs: options.stallMs }),
})

/** A machine that is not Debian's has nothing to build images with. */
const canBuild = (host: MicroVmHost): boolean => missingFor('image', host).length === 0
