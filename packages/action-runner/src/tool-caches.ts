/**
 * Directories that tools make for themselves: they are left out of a result tree at any depth, unless the input tree tracks
 * them, in which case the input's content is carried over. Only directories of these names count, not files or links.
 * A change here is a change of the key's version.
 */
export const toolCacheDirectories = [
  'target',
  '__pycache__',
  '.pytest_cache',
  '.ruff_cache',
  '.mypy_cache',
  '.hypothesis',
  '.tox',
  '.nox',
  '.gradle',
  '.turbo',
  '.parcel-cache',
  '.nyc_output',
] as const
