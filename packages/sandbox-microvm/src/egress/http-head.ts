/** A request as it arrived; `headers` are names and values in turn, as written. */
export type RequestHead = {
  readonly target: string
  /** `1.0` or `1.1`. */
  readonly version: string
  readonly headers: readonly string[]
}

/** Names and values in pairs. */
export type Field = [name: string, value: string]

/** A request that may go to its host, or the status and the reason why not. */
export type JudgedHead =
  | { readonly ok: true; readonly target: string; readonly fields: readonly Field[] }
  | { readonly ok: false; readonly status: 400 | 421; readonly text: string; readonly asked?: string }

/** Fields between two neighbours of a connection (RFC 9110 7.6.1); `transfer-encoding` is kept, as a body is passed on as it came. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'upgrade',
])

/** Pairs of a flat list. */
export const fieldsOf = (flat: readonly string[]): Field[] =>
  Array.from({ length: flat.length >> 1 }, (_, index) => [flat[index * 2] ?? '', flat[index * 2 + 1] ?? ''])

/** Without the fields that end here. */
export const endToEnd = (fields: readonly Field[]): Field[] =>
  fields.filter(([name]) => !HOP_BY_HOP.has(name.toLowerCase()))

/** The value of a field that stands at most once. */
export const fieldOf = (fields: readonly Field[], name: string): string | undefined =>
  fields.find(([written]) => written.toLowerCase() === name)?.[1]

/**
 * Whether a request goes to the host that was dialled: exactly one `Host` that names it (and its port, if any), and a target
 * that names no other. A target in absolute form comes out in origin form, since servers believe it before `Host`.
 */
export function judgeHead(
  head: RequestHead,
  dialled: { readonly name: string; readonly port: number; readonly secure: boolean },
): JudgedHead {
  const fields = fieldsOf(head.headers)
  const hosts = fields.filter(([name]) => name.toLowerCase() === 'host').map(([, value]) => value)
  if (hosts.length > 1) return { ok: false, status: 400, text: 'more than one Host' }
  const isHere = (authority: string): boolean => {
    const match = /^([a-z0-9_.-]+?)\.?(?::([0-9]{0,5}))?$/.exec(authority.toLowerCase())
    const implied = dialled.secure ? 443 : 80
    return match !== null && match[1] === dialled.name && (match[2] ? Number(match[2]) : implied) === dialled.port
  }
  const host = hosts[0]
  if (host === undefined && head.version !== '1.0') return { ok: false, status: 400, text: 'no Host' }
  if (host !== undefined && !isHere(host)) return elsewhere(host, dialled.name)

  const absolute = /^([a-z][a-z0-9+.-]*):\/\/([^/?#]*)(.*)$/i.exec(head.target)
  if (absolute !== null) {
    const [, scheme = '', authority = '', rest = ''] = absolute
    if (scheme.toLowerCase() !== (dialled.secure ? 'https' : 'http') || !isHere(authority))
      return elsewhere(authority, dialled.name)
    return { ok: true, target: rest.startsWith('/') ? rest : `/${rest}`, fields }
  }
  if (head.target !== '*' && !head.target.startsWith('/'))
    return { ok: false, status: 400, text: 'not a target of a request' }
  return { ok: true, target: head.target, fields: host === undefined ? [['Host', dialled.name], ...fields] : fields }
}

const elsewhere = (asked: string, name: string): JudgedHead => ({
  ok: false,
  status: 421,
  text: `this connection goes to ${name} and to no other host`,
  // It came from the guest and goes to people.
  asked: /^[\x21-\x7e]{1,300}$/.test(asked) ? asked.toLowerCase() : 'something unreadable',
})
