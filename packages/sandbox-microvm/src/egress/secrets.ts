import { MicroVmError } from '../errors.ts'
import { createAllowList } from './allow-list.ts'
import { type HostRule, parseHostRule } from './host-rule.ts'
import { createReplacer, type Replacer } from './replace.ts'

/** One secret: what the guest has of it, and where the real value goes. */
export type SecretRule = {
  /** How people know it: the variable of the host that holds it. Never the value. */
  readonly name: string
  /** What stands in the guest's environment. */
  readonly placeholder: string
  /** Read each time it is used, so that a new value counts at once; undefined: it is not set. */
  readonly value: () => string | undefined
  /** Names and wildcards, without ports. */
  readonly hosts: readonly string[]
  /** Also in request bodies; default only in header values. */
  readonly inBody?: boolean
  /** Also in a request's target: its path and query. */
  readonly inQuery?: boolean
}

/** Why a request cannot go out. */
export type SecretProblem = { readonly name: string; readonly problem: 'missing' | 'unusable' }

/** What became of one request's placeholders, gathered as it goes. */
export type Findings = {
  readonly used: Set<string>
  /** Placeholders of secrets that are not for this host. */
  readonly withheld: Set<string>
  readonly problems: Map<string, SecretProblem>
  /** Credentials as they went out in base64, and the same with the placeholder. */
  readonly encoded: Map<string, string>
}

/** The secrets, seen from one host. */
export type HostSecrets = {
  /** Whether any secret is for this host. */
  readonly any: boolean
  /** A header's value, on its way out. */
  header(name: string, value: string, findings: Findings): string
  target(target: string, findings: Findings): string
  /** For a body of that type; undefined: it goes out as it is. */
  body(contentType: string | undefined, findings: Findings): Replacer | undefined
  /** Puts placeholders where real values come back. */
  redactor(findings: Findings): Replacer | undefined
}

/** A shorter value would be found where it is not meant. */
const SHORTEST_REDACTED = 8

/** Nothing found yet. */
export const noFindings = (): Findings => ({
  used: new Set(),
  withheld: new Set(),
  problems: new Map(),
  encoded: new Map(),
})

/**
 * All secrets of a guest.
 *
 * @throws MicroVmError `bad_spec` for a placeholder or a host that is none.
 */
export function createSecrets(rules: readonly SecretRule[]): { forHost(name: string): HostSecrets } {
  const secrets = rules.map((rule) => {
    // As bytes that a header, a URL and JSON can carry, and none that a value could hold by chance.
    if (!/^[\x21-\x7e]{6,256}$/.test(rule.placeholder))
      throw new MicroVmError(
        'bad_spec',
        `the placeholder of ${rule.name} must have 6 to 256 characters of ASCII, no space`,
      )
    return { rule, hosts: createAllowList(rule.hosts.map((host) => hostOf(rule, host))) }
  })

  return {
    forHost: (name) => {
      const own = (index: number): boolean => (secrets[index]?.hosts.portsOf(name).length ?? 0) > 0
      return hostSecrets(secrets.map(({ rule }, index) => ({ rule, own: own(index) })))
    },
  }
}

function hostOf(rule: SecretRule, text: string): HostRule {
  const parsed = parseHostRule(text)
  if (!parsed.ok) throw new MicroVmError('bad_spec', `the host "${text}" of ${rule.name}: ${parsed.problem.message}`)
  if (parsed.rule.kind === 'name' || parsed.rule.kind === 'below') return parsed.rule
  throw new MicroVmError('bad_spec', `the host "${text}" of ${rule.name} must be a name: only a name has a certificate`)
}

type Scoped = { readonly rule: SecretRule; readonly own: boolean }

/** How a value is written at some place, and what it may not hold there. */
type Place = { readonly encode: (value: string) => string; readonly never?: RegExp }

// A line break would end the header and begin another one.
const HEADER: Place = { encode: (value) => value, never: /[\x00-\x1f\x7f]/ }
const URL: Place = { encode: (value) => encodeURIComponent(value.toWellFormed()) }
const JSON_TEXT: Place = { encode: (value) => JSON.stringify(value).slice(1, -1) }
const RAW: Place = { encode: (value) => value }

function hostSecrets(all: readonly Scoped[]): HostSecrets {
  /**
   * Looks for the placeholders of all secrets, so that one that is the start of another is not taken for it; puts in the
   * value of those that are for this host and for this place.
   */
  const replacerFor = (place: Place, isFor: (rule: SecretRule) => boolean, findings: Findings) => {
    const table = new Map<string, string>()
    const owners = new Map<
      string,
      { readonly scoped: Scoped; readonly outcome: 'used' | SecretProblem['problem'] | 'withheld' }
    >()
    for (const scoped of all) {
      const { rule, own } = scoped
      if (own && !isFor(rule)) continue
      const value = own ? rule.value() : undefined
      const outcome = own ? outcomeOf(value, place) : 'withheld'
      for (const placeholder of new Set([rule.placeholder, place.encode(rule.placeholder)])) {
        // Two secrets may share a placeholder, each for its own hosts.
        if (owners.get(placeholder)?.scoped.own === true) continue
        owners.set(placeholder, { scoped, outcome })
        table.set(placeholder, outcome === 'used' && value !== undefined ? latin1(place.encode(value)) : placeholder)
      }
    }
    const onFound = (found: string): void => {
      const owner = owners.get(found)
      if (owner === undefined) return
      const { name } = owner.scoped.rule
      switch (owner.outcome) {
        case 'used':
          findings.used.add(name)
          break
        case 'withheld':
          findings.withheld.add(name)
          break
        case 'missing':
        case 'unusable':
          findings.problems.set(name, { name, problem: owner.outcome })
          break
      }
    }
    const replacer = createReplacer(table)
    return replacer === undefined
      ? undefined
      : { text: (input: string) => replacer.text(input, onFound), stream: () => replacer.stream(onFound) }
  }

  return {
    any: all.some(({ own }) => own),
    header: (name, value, findings) => {
      const replacer = replacerFor(HEADER, () => true, findings)
      if (replacer === undefined) return value
      const basic = name.toLowerCase() === 'authorization' ? /^(basic +)([A-Za-z0-9+/]+={0,2})$/i.exec(value) : null
      const [, scheme, encoded] = basic ?? []
      if (scheme === undefined || encoded === undefined) return replacer.text(value)
      const plain = Buffer.from(encoded, 'base64').toString('latin1')
      const replaced = replacer.text(plain)
      if (replaced === plain) return value
      const real = Buffer.from(replaced, 'latin1').toString('base64')
      findings.encoded.set(real, encoded)
      return `${scheme}${real}`
    },
    target: (target, findings) => replacerFor(URL, (rule) => rule.inQuery === true, findings)?.text(target) ?? target,
    body: (contentType, findings) => {
      if (!all.some(({ rule, own }) => own && rule.inBody === true)) return undefined
      return replacerFor(placeOf(contentType), (rule) => rule.inBody === true, findings)
    },
    redactor: (findings) => {
      const table = new Map(findings.encoded)
      for (const { rule, own } of all) {
        const value = own ? rule.value() : undefined
        if (value === undefined || value.length < SHORTEST_REDACTED) continue
        for (const { encode } of [RAW, URL, JSON_TEXT]) table.set(latin1(encode(value)), rule.placeholder)
      }
      return createReplacer(table)
    },
  }
}

const placeOf = (contentType: string | undefined): Place => {
  const type = contentType?.split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (type === 'application/x-www-form-urlencoded') return URL
  return type === 'application/json' || type.endsWith('+json') ? JSON_TEXT : RAW
}

/** UTF-8, one character a byte. */
const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1')

function outcomeOf(value: string | undefined, place: Place): 'used' | SecretProblem['problem'] {
  if (value === undefined || value === '') return 'missing'
  return place.never?.test(value) === true ? 'unusable' : 'used'
}
