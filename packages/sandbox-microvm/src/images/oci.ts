import { createHash } from 'node:crypto'
import * as v from 'valibot'
import { describeIssues } from '@reve/base'
import { MicroVmError } from '../errors.ts'
import { DIGEST } from './reference.ts'

/** Documents of an image are small; what is larger is not one. */
export const MAX_DOCUMENT_BYTES = 8 * 2 ** 20

const size = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const digest = v.pipe(v.string(), v.regex(DIGEST, 'must be a sha256 digest'))
const Descriptor = v.object({ mediaType: v.optional(v.string(), ''), digest, size })

const Index = v.object({
  manifests: v.array(
    v.object({
      ...Descriptor.entries,
      platform: v.optional(v.object({ os: v.string(), architecture: v.string(), variant: v.optional(v.string()) })),
      annotations: v.optional(v.record(v.string(), v.string()), {}),
    }),
  ),
})

const Manifest = v.object({ config: Descriptor, layers: v.array(Descriptor) })

/** Variables as `NAME=value`; what is not one is not our problem. */
const Config = v.object({
  architecture: v.optional(v.string(), 'amd64'),
  os: v.optional(v.string(), 'linux'),
  config: v.nullish(
    v.object({
      Env: v.nullish(v.array(v.string()), []),
      WorkingDir: v.nullish(v.string(), ''),
      User: v.nullish(v.string(), ''),
    }),
  ),
  rootfs: v.optional(v.object({ diff_ids: v.nullish(v.array(digest), []) }), { diff_ids: [] }),
})

const DockerManifest = v.pipe(
  v.array(
    v.object({
      Config: v.string(),
      RepoTags: v.nullish(v.array(v.string()), []),
      Layers: v.array(v.string()),
    }),
  ),
  v.minLength(1),
)

/** A piece of an image by its digest. Bytes. */
export type Descriptor = v.InferOutput<typeof Descriptor>
export type ImageIndex = v.InferOutput<typeof Index>
export type ImageManifest = v.InferOutput<typeof Manifest>
export type ImageConfigFile = v.InferOutput<typeof Config>
export type DockerArchiveManifest = v.InferOutput<typeof DockerManifest>

/** What an image says about the programs that run in it. */
export type ImageSettings = {
  readonly env: Readonly<Record<string, string>>
  readonly workdir: string
  readonly user: string
}

const failed = (message: string): MicroVmError => new MicroVmError('image_failed', message)

function parseWith<T extends v.GenericSchema>(schema: T, bytes: Uint8Array, what: string): v.InferOutput<T> {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    throw new MicroVmError('image_failed', `${what} is not JSON`, { cause: error })
  }
  const result = v.safeParse(schema, value)
  if (result.success) return result.output
  const [first] = describeIssues(result.issues)
  throw failed(`${what} is not valid: ${first?.path ?? ''}: ${first?.message ?? 'of another form'}`)
}

export const parseConfig = (bytes: Uint8Array, what: string): ImageConfigFile => parseWith(Config, bytes, what)
export const parseDockerManifest = (bytes: Uint8Array, what: string): DockerArchiveManifest =>
  parseWith(DockerManifest, bytes, what)
export const parseIndex = (bytes: Uint8Array, what: string): ImageIndex => parseWith(Index, bytes, what)

/** An index of several images, or one image. @throws MicroVmError `image_failed`, also for the form before 2016 */
export function parseManifest(
  bytes: Uint8Array,
  what: string,
):
  | { readonly kind: 'index'; readonly index: ImageIndex }
  | { readonly kind: 'image'; readonly manifest: ImageManifest } {
  const shape = parseWith(
    v.object({ schemaVersion: v.optional(v.number()), manifests: v.optional(v.unknown()) }),
    bytes,
    what,
  )
  if (shape.schemaVersion === 1)
    throw failed(`${what} is of the first format of Docker, which is not read; push the image again with a newer tool`)
  if (shape.manifests !== undefined) return { kind: 'index', index: parseIndex(bytes, what) }
  return { kind: 'image', manifest: parseWith(Manifest, bytes, what) }
}

/** The image of an index that runs in our guests. @throws MicroVmError `image_failed` that lists what there is */
export function chooseImage(index: ImageIndex, what: string): Descriptor {
  const fits = index.manifests.find(({ platform }) => platform?.os === 'linux' && platform.architecture === 'amd64')
  const only = index.manifests.length === 1 ? index.manifests[0] : undefined
  const chosen = fits ?? (only?.platform === undefined ? only : undefined)
  if (chosen !== undefined) return chosen
  const there = index.manifests.flatMap(({ platform }) =>
    platform === undefined || platform.os === 'unknown' ? [] : [`${platform.os}/${platform.architecture}`],
  )
  throw failed(`${what} is not made for linux/amd64, only for ${[...new Set(there)].join(', ') || 'nothing'}`)
}

/** @throws MicroVmError `image_failed` for another system, processor, or layers that do not fit */
export function checkConfig(config: ImageConfigFile, layers: number, what: string): void {
  if (config.os !== 'linux' || config.architecture !== 'amd64')
    throw failed(`${what} is made for ${config.os}/${config.architecture}; guests are linux/amd64`)
  const known = config.rootfs.diff_ids?.length ?? 0
  if (known > 0 && known !== layers) throw failed(`${what} has ${layers} layers and names ${known}`)
}

/** Layers that lie elsewhere or are encrypted cannot be read. */
export function checkLayer({ mediaType }: Descriptor, what: string): void {
  if (/encrypted|nondistributable|foreign/.test(mediaType))
    throw failed(`${what} has a layer of the type ${mediaType}, which cannot be read`)
}

export function settingsOf({ config }: ImageConfigFile): ImageSettings {
  const env: Record<string, string> = {}
  for (const line of config?.Env ?? []) {
    const equals = line.indexOf('=')
    if (equals > 0 && !line.includes('\0')) env[line.slice(0, equals)] = line.slice(equals + 1)
  }
  return { env, workdir: config?.WorkingDir ?? '', user: config?.User ?? '' }
}

export const digestOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`
