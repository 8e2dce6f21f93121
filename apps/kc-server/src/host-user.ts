import { readFileSync } from 'node:fs'

/** A user of this machine, by name or number, from its password file. */
export function resolveUser(
  name: string,
): { readonly uid: number; readonly gid: number; readonly name: string } | undefined {
  const lines = readFileSync('/etc/passwd', 'utf8').split('\n')
  for (const line of lines) {
    const [user, , uid, gid] = line.split(':')
    if (user === undefined || uid === undefined || gid === undefined) continue
    if (user === name || uid === name) return { uid: Number(uid), gid: Number(gid), name: user }
  }
  return undefined
}
