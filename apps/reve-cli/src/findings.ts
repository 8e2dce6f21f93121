import { access, constants, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Agent, parseHeartbeats, wasInterrupted } from '@reve/agent'
import { isReveError, messageOf, openConfined } from '@reve/base'
import type { ModelCatalogue } from '@reve/providers'
import { type BackendReport, listImages, type MissingProgram, type SandboxPolicy } from '@reve/sandbox-microvm'
import { listSessions } from '@reve/session-log'
import { sessionsOf } from './session-files.ts'
import { count, size } from './table.ts'

/** One thing that was looked at. */
export type Finding = {
  readonly subject: string
  /** `note`: works, and should be known. */
  readonly state: 'ok' | 'note' | 'bad'
  readonly text: string
}

const HEARTBEATS = 'HEARTBEAT.yml'
const MOST_BYTES = 1 << 18
/** A disk and an image of Debian with the usual tools need about this much. */
const ENOUGH_BYTES = 4 * 2 ** 30

export const programs = (missing: readonly MissingProgram[], command: string): Finding => {
  if (missing.length === 0) return { subject: 'programs', state: 'ok', text: 'all there' }
  const list = missing.map(({ program, reason }) => `${program} (${reason})`).join(', ')
  return {
    subject: 'programs',
    state: missing.some(({ when }) => when === 'run') ? 'bad' : 'note',
    text: `missing: ${list}; get them with: ${command}`,
  }
}

/** Whether this user may use the processor's virtualisation. What it is good for, the backends' trial boots say. */
export async function kvm(): Promise<Finding> {
  const finding = (state: Finding['state'], text: string): Finding => ({ subject: 'kvm', state, text })
  if (process.platform !== 'linux') return finding('note', `there is none on ${process.platform}`)
  try {
    await access('/dev/kvm', constants.R_OK | constants.W_OK)
    return finding('ok', '/dev/kvm can be opened')
  } catch (error) {
    const missing = await stat('/dev/kvm').then(
      () => false,
      () => true,
    )
    if (missing)
      return finding('note', 'there is no /dev/kvm: QEMU emulates the processor, which is slower and a weaker boundary')
    return finding(
      'note',
      `/dev/kvm cannot be opened (${messageOf(error)}): add this user to the group kvm; without it QEMU emulates the processor, which is slower and a weaker boundary`,
    )
  }
}

export const backend = ({ backend: subject, ok, accelerator, reason }: BackendReport): Finding => {
  if (!ok) return { subject, state: 'note', text: reason }
  const emulated = accelerator === 'tcg'
  return {
    subject,
    state: emulated ? 'note' : 'ok',
    text: `boots, ${accelerator ?? 'no accelerator'}: ${reason}${emulated ? '; emulated: slower, and a weaker boundary than the hardware’s' : ''}`,
  }
}

/** Room where it will be needed; the folder may not be there yet. */
export async function disk(what: string, folder: string): Promise<Finding> {
  const free = await freeBytes(folder)
  if (free === undefined) return { subject: 'disk', state: 'note', text: `what is free for ${what} is not known` }
  const text = `${size(free)} free for ${what} (${folder})`
  return free < ENOUGH_BYTES
    ? {
        subject: 'disk',
        state: 'note',
        text: `${text}: little; an image and a disk take ${size(ENOUGH_BYTES)} or more`,
      }
    : { subject: 'disk', state: 'ok', text }
}

async function freeBytes(folder: string): Promise<number | undefined> {
  for (let at = folder; ; at = dirname(at)) {
    const found = await statfs(at).catch(() => undefined)
    if (found !== undefined) return found.bavail * found.bsize
    if (dirname(at) === at) return undefined
  }
}

/** Whether the first start has to make the agent's image. */
export async function image({ image: ref, packages, provision }: SandboxPolicy, cacheDir: string): Promise<Finding> {
  const wanted = provision ? packages : []
  const found = (await listImages(cacheDir)).find(
    ({ refs, packages: has }) => refs.includes(ref) && [...has].toSorted().join() === [...wanted].toSorted().join(),
  )
  return found === undefined
    ? {
        subject: 'image',
        state: 'note',
        text: `${ref} is not in the cache: the first start makes it, or "reve image build"`,
      }
    : { subject: 'image', state: 'ok', text: `${ref} is in the cache, ${size(found.bytes)}` }
}

/** Of each provider of `models.yml`: whether it can be asked, and the variable that it lacks. */
export function providers(catalogue: ModelCatalogue): readonly Finding[] {
  const { models, problems } = catalogue
  const names = [...new Set(models.map(({ id }) => id.slice(0, id.indexOf('/'))))]
  const keys = names.map((name): Finding => {
    const own = models.filter(({ id }) => id.startsWith(`${name}/`))
    const text = `${name}: ${count(own.length, 'model')}`
    try {
      catalogue.resolve(own[0]?.id ?? name)
      return { subject: 'provider', state: 'ok', text: `${text}, what it needs is set` }
    } catch (error) {
      if (!isReveError(error)) throw error
      return { subject: 'provider', state: 'note', text: error.message }
    }
  })
  return [...keys, ...problems.map(({ message }): Finding => ({ subject: 'provider', state: 'bad', text: message }))]
}

export const secrets = (policy: SandboxPolicy, env: (name: string) => string | undefined): readonly Finding[] =>
  policy.secrets.map(({ source, hosts }) => {
    const isSet = (env(source) ?? '') !== ''
    return {
      subject: 'secret',
      state: isSet ? 'ok' : 'note',
      text: `${source} is ${isSet ? 'set' : 'not set'} (for ${hosts.join(', ')})`,
    }
  })

export async function skills(agent: Agent): Promise<readonly Finding[]> {
  const { skills: good, problems } = await agent.skills()
  return [
    ...(good.length === 0
      ? []
      : [{ subject: 'skills', state: 'ok', text: good.map(({ name }) => name).join(', ') } as const]),
    ...problems.map((text) => ({ subject: 'skill', state: 'bad', text }) as const),
  ]
}

/** The MCP servers of `agent.lua`, asked for their tools. */
export async function mcpServers(agent: Agent, signal: AbortSignal): Promise<readonly Finding[]> {
  const servers = await agent.askMcpServers({ signal })
  return servers.map(({ name, url, state, tools, problems }) => {
    const said = state === 'up' ? count(tools, 'tool') : 'no answer yet'
    const text = `${name} (${url}): ${problems.length > 0 ? problems.join('; ') : said}`
    return { subject: 'mcp', state: state === 'up' && problems.length === 0 ? 'ok' : 'note', text }
  })
}

/** The tasks of `HEARTBEAT.yml`, or what is wrong with it. */
export async function heartbeats(root: string): Promise<readonly Finding[]> {
  try {
    const workspace = await openConfined(join(root, 'workspace'))
    const tasks = parseHeartbeats(await workspace.readText(HEARTBEATS, { maxBytes: MOST_BYTES }), HEARTBEATS)
    return tasks.length === 0
      ? []
      : [
          {
            subject: 'heartbeats',
            state: 'ok',
            text: `${tasks.map(({ name }) => name).join(', ')}; "reve serve" runs them`,
          },
        ]
  } catch (error) {
    if (!isReveError(error)) throw error
    return error.code === 'not_found' ? [] : [{ subject: 'heartbeats', state: 'bad', text: error.message }]
  }
}

export async function sessions(root: string): Promise<readonly Finding[]> {
  const found = await listSessions(sessionsOf(root))
  const broken = found.filter(({ kind }) => kind === 'broken')
  const [newest] = found.filter(({ kind }) => kind === 'session')
  const open = newest !== undefined && (await wasInterrupted(newest.file).catch(() => false))
  return [
    { subject: 'sessions', state: 'ok', text: count(found.length, 'session') },
    ...(open
      ? [
          {
            subject: 'session',
            state: 'note',
            text: 'the last run is not finished: "reve run --continue" picks it up',
          } as const,
        ]
      : []),
    ...broken.map(
      ({ file }) =>
        ({
          subject: 'session',
          state: 'note',
          text: `${file} cannot be read: "reve sessions verify" says why`,
        }) as const,
    ),
  ]
}
