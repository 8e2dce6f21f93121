import { isAbsolute } from 'node:path'
import { MicroVmError } from '../errors.ts'
import type { ImageSpec } from '../spec.ts'

/** An image of a registry. */
export type RegistryReference = {
  /** Host and, where there is one, port: `docker.io`, `ghcr.io`, `127.0.0.1:5000`. */
  readonly registry: string
  /** `library/debian`. */
  readonly repository: string
  /** What is asked for: a tag, or a digest that then has to fit (`sha256:` and 64 hex digits). */
  readonly version: string
}

/** Where a root file system comes from. */
export type ImageSource =
  | { readonly kind: 'debootstrap'; readonly suite: string }
  /** Debian's own image, or the same suite built from its packages. */
  | { readonly kind: 'debian'; readonly suite: string; readonly reference: RegistryReference }
  | { readonly kind: 'registry'; readonly reference: RegistryReference }
  | {
      readonly kind: 'oci-archive' | 'docker-archive' | 'oci'
      readonly path: string
      /** Which one, where there are several. */
      readonly name?: string
    }
  | { readonly kind: 'tar'; readonly path: string }
  | { readonly kind: 'dir'; readonly path: string }

/** The spellings of an image, for messages. */
export const IMAGE_SPELLINGS =
  '"debian:trixie-slim", "debootstrap:<suite>", "[registry/]name[:tag|@sha256:...]", "oci-archive:/path.tar[:tag]", "docker-archive:/path.tar[:name]", "oci:/folder[:tag]", "tar:/root.tar" or "dir:/root"'

const DEFAULT_REGISTRY = 'docker.io'
const COMPONENT = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/
const HOST =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::\d{1,5})?$/
const IPV6_HOST = /^\[[0-9a-fA-F:]+\](?::\d{1,5})?$/
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/
const NAME_LENGTH = 255
/** A digest as registries and archives write it; the one algorithm that all of them use. */
export const DIGEST = /^sha256:[0-9a-f]{64}$/

/**
 * Reads the reference of an image; pure, nothing is looked up.
 *
 * @throws MicroVmError `bad_spec` that says what is wrong with it and how images are spelt.
 */
export function parseImageReference(ref: string): ImageSource {
  const source = parse(ref)
  if (typeof source === 'string') throw new MicroVmError('bad_spec', `image "${ref}": ${source}`)
  return source
}

/** What is wrong with a reference, if anything is. */
export function imageProblem(ref: string): string | undefined {
  const source = parse(ref)
  return typeof source === 'string' ? source : undefined
}

/** Ends the reading of a reference; the message says why. */
class Wrong extends Error {}

const wrong = (what: string): Wrong => new Wrong(what)

function parse(ref: string): ImageSource | string {
  try {
    return parseSource(ref)
  } catch (error) {
    if (error instanceof Wrong) return `${error.message}. An image is ${IMAGE_SPELLINGS}`
    throw error
  }
}

function parseSource(ref: string): ImageSource {
  const [, scheme, rest = ''] = /^(debootstrap|oci-archive|docker-archive|oci|tar|dir):(.*)$/s.exec(ref) ?? []
  switch (scheme) {
    case 'debootstrap':
      if (!/^[a-z]+$/.test(rest)) throw wrong('a suite is named like "trixie"')
      return { kind: 'debootstrap', suite: rest }
    case 'dir':
    case 'tar':
      return { kind: scheme, path: absolute(rest) }
    case 'oci':
    case 'oci-archive':
    case 'docker-archive': {
      const colon = rest.indexOf(':')
      const path = absolute(colon < 0 ? rest : rest.slice(0, colon))
      const name = colon < 0 ? undefined : rest.slice(colon + 1)
      if (name === '') throw wrong('the name after the path is empty')
      return { kind: scheme, path, ...(name === undefined ? {} : { name }) }
    }
    default: {
      const reference = parseRegistryReference(ref)
      const [, suite] = /^debian:([a-z]+)(?:-slim)?$/.exec(ref) ?? []
      return suite === undefined || suite === 'latest'
        ? { kind: 'registry', reference }
        : { kind: 'debian', suite, reference }
    }
  }
}

function absolute(path: string): string {
  if (!isAbsolute(path) || path.includes('\0')) throw wrong('its path is not absolute')
  return path
}

function parseRegistryReference(ref: string): RegistryReference {
  const at = ref.indexOf('@')
  const digest = at < 0 ? undefined : ref.slice(at + 1)
  if (digest !== undefined && !DIGEST.test(digest)) throw wrong('a digest is sha256: and 64 hex digits')
  const named = at < 0 ? ref : ref.slice(0, at)
  const slash = named.indexOf('/')
  const first = slash < 0 ? '' : named.slice(0, slash)
  // The same rule as everywhere: what has a dot or a port before the first slash is a host.
  const isHost = first === 'localhost' || /[.:]/.test(first)
  const registry = isHost ? first : DEFAULT_REGISTRY
  if (isHost && !HOST.test(first) && !IPV6_HOST.test(first)) throw wrong(`"${first}" is not the host of a registry`)
  const path = isHost ? named.slice(slash + 1) : named
  const colon = path.indexOf(':')
  const repository = colon < 0 ? path : path.slice(0, colon)
  const tag = colon < 0 ? undefined : path.slice(colon + 1)
  if (tag !== undefined && !TAG.test(tag)) throw wrong(`"${tag}" is not a tag`)
  if (repository.length > NAME_LENGTH || !repository.split('/').every((part) => COMPONENT.test(part)))
    throw wrong(`"${repository}" is not the name of an image`)
  return {
    registry,
    repository: registry === DEFAULT_REGISTRY && !repository.includes('/') ? `library/${repository}` : repository,
    version: digest ?? tag ?? 'latest',
  }
}

/** The whole reference in one spelling: what is the same image is spelt the same. */
export const printRegistryReference = ({ registry, repository, version }: RegistryReference): string =>
  `${registry}/${repository}${DIGEST.test(version) ? '@' : ':'}${version}`

/** A name as it stands in an archive, in that spelling where it is one of a registry's. */
export function wholeName(name: string): string {
  const source = parse(name)
  return typeof source !== 'string' && 'reference' in source ? printRegistryReference(source.reference) : name
}

/** The names of Debian packages, sorted, each once. @throws MicroVmError `bad_spec` */
export function checkPackages(packages: readonly string[]): readonly string[] {
  const wrong = packages.find((name) => !/^[a-z0-9][a-z0-9+.-]+$/.test(name))
  if (wrong !== undefined) throw new MicroVmError('bad_spec', `"${wrong}" is not the name of a Debian package`)
  return [...new Set(packages)].toSorted()
}

/** Checks an image and its packages without looking anything up. @throws MicroVmError `bad_spec` */
export function checkImageSpec(spec: ImageSpec): void {
  parseImageReference(spec.ref)
  checkPackages(spec.packages)
}
