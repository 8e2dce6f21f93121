import type { ImageRecord } from './store.ts'

/** The packages of a spec that its image was made without: those that were asked for on an image that was not built for them. */
export const missingPackages = (record: ImageRecord | undefined, packages: readonly string[]): readonly string[] =>
  record === undefined || record.digest === '' ? [] : packages

/**
 * Shell text that installs Debian packages in a guest, over its own network. The names were checked: none is an option, none
 * holds what a shell would read.
 *
 * @throws nothing; a failure is its exit code
 */
export const installScript = (packages: readonly string[]): string =>
  `set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o Acquire::Retries=3 -o Acquire::Languages=none -o APT::Sandbox::User=root update
apt-get -qq -y -o Acquire::Retries=3 -o APT::Sandbox::User=root -o Dpkg::Options::=--force-unsafe-io --no-install-recommends install ${packages.join(' ')}
apt-get clean
`

/** What to do about a failed one. */
export const INSTALL_HINT =
  "the hosts of the image's own package sources have to be in sandbox.lua's allow; or set provision = false there"
