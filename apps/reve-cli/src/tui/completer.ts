import { openConfined, type Confined, isReveError } from '@reve/base'
import { thinkingLevels, exportFormats } from './command-list.ts'
import { allCommands, sessionItems } from './commands.ts'
import {
  commandCandidates,
  sizeText,
  wantedAt,
  withItems,
  wordCandidates,
  type Candidate,
  type Wanted,
} from './completion.ts'
import { FileIndex } from './file-index.ts'
import type { Shell } from './shell.ts'
import { themes } from './theme.ts'

const mostFiles = 200
/** Of so many the size is looked up. */
const sizedFiles = 8

/** Words of an argument, and for which question they were looked up. */
type Words = readonly { readonly value: string; readonly label?: string; readonly detail?: string }[]

/** Keeps the list of what could stand at the cursor up to date with what is typed. */
export class Completer {
  readonly #shell: Shell
  #files: FileIndex | undefined
  #workspace: Confined | undefined
  /** Models, sessions and skills are asked for once while one word is typed. */
  #words: { readonly takes: string; readonly words: Words | undefined } | undefined
  readonly #sizes = new Map<string, string>()

  constructor(shell: Shell) {
    this.#shell = shell
  }

  /** The agent's folder is known. */
  async begin(workspace: string): Promise<void> {
    this.#workspace = await openConfined(workspace)
    this.#files = new FileIndex(this.#workspace, () => this.update())
    this.#files.refresh()
  }

  /** Files may have come and gone. */
  refresh(): void {
    this.#sizes.clear()
    this.#files?.refresh()
  }

  stop(): void {
    this.#files?.stop()
  }

  /** What is typed has changed, or there is more to show. */
  update(): void {
    const { store } = this.#shell
    const { editor, closedFor, completion, overlay } = store.state
    if (overlay !== undefined || (closedFor !== undefined && closedFor === editor.text)) {
      if (completion !== undefined) store.set({ completion: undefined })
      return
    }
    const wanted = wantedAt(editor.text, editor.cursor, allCommands(this.#shell))
    if (wanted?.kind !== 'argument') this.#words = undefined
    const next = wanted === undefined ? undefined : this.#listFor(wanted)
    if (next === undefined && completion === undefined && closedFor === undefined) return
    store.set({ completion: next, closedFor: undefined })
  }

  #listFor(wanted: Wanted): ReturnType<typeof withItems> {
    const before = this.#shell.store.state.completion
    switch (wanted.kind) {
      case 'command':
        return withItems(before, wanted, commandCandidates(wanted.query, allCommands(this.#shell)))
      case 'file': {
        const scanning = this.#files?.scanning === true
        const note = scanning ? 'still looking' : undefined
        const items = this.#fileItems(wanted.query)
        return items.length === 0 && !scanning ? undefined : withItems(before, wanted, items, note)
      }
      case 'argument': {
        const words = this.#wordsOf(wanted.takes)
        const more = wanted.takes === 'skill' || wanted.takes === 'format'
        return withItems(
          before,
          wanted,
          wordCandidates(wanted.query, words ?? [], more),
          words === undefined ? 'looking' : undefined,
        )
      }
      default:
        return wanted satisfies never
    }
  }

  #fileItems(query: string): readonly Candidate[] {
    const found = this.#files?.find(query, mostFiles) ?? []
    for (const { path } of found.slice(0, sizedFiles)) this.#lookUp(path)
    return found.map(({ path }) => {
      const detail = this.#sizes.get(path)
      return { value: path, more: true, ...(detail !== undefined && detail !== '' && { detail }) }
    })
  }

  #lookUp(path: string): void {
    if (this.#sizes.has(path) || this.#workspace === undefined) return
    this.#sizes.set(path, '')
    this.#workspace.stat(path).then(
      ({ size }) => {
        this.#sizes.set(path, sizeText(size))
        this.update()
      },
      (error: unknown) => {
        // It went away meanwhile.
        if (!isReveError(error)) this.#shell.note(String(error), 'error')
      },
    )
  }

  #wordsOf(takes: string): Words | undefined {
    if (this.#words?.takes === takes) return this.#words.words
    const fixed = fixedWords(takes)
    this.#words = { takes, words: fixed }
    if (fixed === undefined) {
      void lookUp(takes, this.#shell)
        .catch((): Words => [])
        .then((words) => {
          if (this.#words?.takes !== takes) return
          this.#words = { takes, words }
          this.update()
        })
    }
    return fixed
  }
}

function fixedWords(takes: string): Words | undefined {
  switch (takes) {
    case 'thinking':
      return thinkingLevels.map((value) => ({ value }))
    case 'format':
      return exportFormats.map((value) => ({ value }))
    case 'theme':
      return Object.keys(themes).map((value) => ({ value }))
    default:
      return undefined
  }
}

async function lookUp(takes: string, shell: Shell): Promise<Words> {
  const agent = shell.agent()
  if (agent === undefined) return []
  switch (takes) {
    case 'model':
      return (await agent.discoverModels()).models.map(({ reference }) => ({ value: reference }))
    case 'skill':
      return (await agent.skills()).skills.map(({ name, description }) => ({ value: name, detail: description }))
    case 'session':
      return (await sessionItems(shell)).map(({ value, label, detail }) => ({
        value: value.slice(value.lastIndexOf('/') + 1),
        detail: detail === undefined ? label : `${label} · ${detail}`,
      }))
    case 'label': {
      const { log } = shell.session() ?? {}
      if (log === undefined) return []
      const { treeOf } = await import('./tree.ts')
      return treeOf(log, log.leaf('main'))
        .nodes.filter(({ label }) => label !== undefined)
        .map(({ label = '', text }) => ({ value: label, detail: text }))
    }
    default:
      return []
  }
}
