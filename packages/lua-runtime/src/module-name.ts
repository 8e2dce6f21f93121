/** Where the modules of `require` lie. */
export const LIBRARY = 'tools/lib'

/** What `require` takes for a file below `tools/lib`: `http.client` for `tools/lib/http/client.lua`, `http` for `tools/lib/http/init.lua`. */
export function moduleName(file: string): string {
  return file
    .slice(file.startsWith(`${LIBRARY}/`) ? LIBRARY.length + 1 : 0)
    .replace(/\.lua$/, '')
    .replace(/\/init$/, '')
    .replaceAll('/', '.')
}
