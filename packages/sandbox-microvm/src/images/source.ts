import type { Readable } from 'node:stream'
import type { ImageConfigFile } from './oci.ts'

/** An image as it comes: what it says of itself, and its layers from the lowest to the highest. */
export type LayeredImage = {
  /** Digest that names exactly this image. */
  readonly digest: string
  readonly config: ImageConfigFile
  /** Each opens one layer, packed as it is; a piece that is not what its digest says ends with an error. */
  readonly layers: readonly (() => Readable)[]
}

/** An image that says nothing of itself. */
export const NO_CONFIG: ImageConfigFile = { architecture: 'amd64', os: 'linux', rootfs: { diff_ids: [] } }
