import { rename } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, type Confined, isReveError, openConfined } from '@reve/base'
import type { Answer, Channel, ChannelInbox } from './channel.ts'
import { ChannelError } from './errors.ts'

/** What a file-drop channel needs. */
export type FileDropOptions = {
  /** The agent's folder; the channel's own folders are made in it. */
  readonly root: string
  /** Default `drop`. */
  readonly name?: string
  /** A new id, each after the one before it (`createIdSource` of `@reve/base`): it goes in front of the name of a file that is taken. */
  readonly newId: () => string
  readonly after: (ms: number, signal: AbortSignal) => Promise<void>
  /** How often the folder is looked at (default 1000 ms). A file is taken when two looks found it alike. */
  readonly pollMs?: number
  /** Bytes of a file; default 262 144. */
  readonly maxBytes?: number
}

const POLL_MS = 1000
const MAX_BYTES = 1 << 18
const NAME_BYTES = 180

/**
 * A channel of files: a text file that is put into `channels/<name>/in` is a message. It is moved to `taking` and, once it is kept, to
 * `done`; what cannot be one to `refused`, with the reason beside it. The answer is a file in `out`, under the name in `done`.
 *
 * Names that begin with a dot, or end with `.tmp`, `.part` or `~`, are left alone: write under such a name, then rename.
 */
export function fileDropChannel(options: FileDropOptions): Channel {
  const { root, name = 'drop', after, pollMs = POLL_MS } = options
  const folder = `channels/${name}`
  return {
    name,
    start: async (inbox, signal) => {
      const confined = await openConfined(root)
      for (const part of ['in', 'taking', 'done', 'refused', 'out']) await confined.mkdirp(`${folder}/${part}`)
      const drop = new Drop(confined, folder, inbox, options)
      while (!signal.aborted) {
        await drop.look()
        await after(pollMs, signal)
      }
    },
    reply: async ({ key = '', id }, answer) => {
      const confined = await openConfined(root)
      await confined.mkdirp(`${folder}/out`)
      await confined.writeAtomic(`${folder}/out/${nameOf(key === '' ? id : key, answer)}`, `${answer.text}\n`)
    },
  }
}

const nameOf = (key: string, { ok }: Answer): string => `${key}.${ok ? 'answer' : 'failed'}.md`

class Drop {
  readonly #confined: Confined
  readonly #folder: string
  readonly #inbox: ChannelInbox
  readonly #options: FileDropOptions
  /** How each file looked the last time. */
  #seen: ReadonlyMap<string, string> = new Map()

  constructor(confined: Confined, folder: string, inbox: ChannelInbox, options: FileDropOptions) {
    this.#confined = confined
    this.#folder = folder
    this.#inbox = inbox
    this.#options = options
  }

  async look(): Promise<void> {
    for (const file of await this.#ready()) {
      // Whoever writes under this name from now on writes another file. The new name is the message's key.
      await this.#move(`in/${file}`, `taking/${this.#options.newId()}~${shortened(file)}`)
    }
    for (const { name } of (await this.#list('taking')).toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      if ((await this.#take(name)) === 'full') return
    }
  }

  /** The files that were alike at the last look, the oldest first. */
  async #ready(): Promise<readonly string[]> {
    const seen = new Map<string, string>()
    const ready: { readonly name: string; readonly modified: number }[] = []
    for (const { name, kind } of await this.#list('in')) {
      if (/^\.|(?:\.tmp|\.part|~)$/.test(name) || kind === 'folder') continue
      const found = kind === 'file' ? await this.#stat(`in/${name}`) : { look: kind, modified: 0 }
      if (found === undefined) continue
      seen.set(name, found.look)
      if (this.#seen.get(name) === found.look) ready.push({ name, modified: found.modified })
    }
    this.#seen = seen
    return ready.toSorted((a, b) => a.modified - b.modified || (a.name < b.name ? -1 : 1)).map(({ name }) => name)
  }

  async #take(name: string): Promise<'done' | 'full'> {
    const path = `taking/${name}`
    try {
      const { maxBytes = MAX_BYTES } = this.#options
      const text = textOf(await this.#confined.readBytes(this.#at(path), { maxBytes }))
      this.#inbox.receive({ text, from: name.slice(name.indexOf('~') + 1), key: name })
    } catch (error) {
      if (!isReveError(error)) throw error
      if (error.code === 'inbox_full') return 'full'
      if (!refusals.has(error.code)) throw error
      const why = error.message.replaceAll(`${this.#folder}/taking/`, '')
      await this.#confined.writeAtomic(this.#at(`refused/${name}.why.txt`), `${why}\n`)
      await this.#move(path, `refused/${name}`)
      return 'done'
    }
    await this.#move(path, `done/${name}`)
    return 'done'
  }

  async #stat(path: string): Promise<{ readonly look: string; readonly modified: number } | undefined> {
    try {
      const { size, modifiedMs, changedMs } = await this.#confined.stat(this.#at(path))
      return { look: `${size} ${modifiedMs} ${changedMs}`, modified: modifiedMs }
    } catch (error) {
      // Taken back, or changed into something else, in this moment.
      if (isReveError(error) && (error.code === 'not_found' || error.code === 'is_link')) return undefined
      throw error
    }
  }

  #list(part: string): ReturnType<Confined['list']> {
    return this.#confined.list(this.#at(part))
  }

  async #move(from: string, to: string): Promise<void> {
    const at = (path: string): string => join(this.#confined.root, this.#at(path))
    try {
      await rename(at(from), at(to))
    } catch (error) {
      // Taken back in this moment.
      if (codeOf(error) !== 'ENOENT') throw error
    }
  }

  #at(path: string): string {
    return `${this.#folder}/${path}`
  }
}

/** Why a file is no message, and never will be one. */
const refusals: ReadonlySet<string> = new Set(['too_large', 'invalid_message', 'key_reused', 'is_link', 'not_a_file'])

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (cause) {
    throw new ChannelError('invalid_message', 'the file is no text in UTF-8', { cause })
  }
}

/** With an id in front and a word behind, a name may still be no longer than file systems take. */
function shortened(name: string): string {
  const bytes = Buffer.from(name)
  return bytes.length <= NAME_BYTES
    ? name
    : new TextDecoder().decode(bytes.subarray(0, NAME_BYTES)).replaceAll('\uFFFD', '')
}
