import type { AgentSession } from '@reve/agent'
import { type HarnessEvent, pendingMessages } from '@reve/harness'
import type { ToolBlock, UiBlock } from './block.ts'
import { assistantRows, blockView, inner } from './block-view.ts'
import { CleanStream, cleanLine } from './clean.ts'
import type { Display } from './display.ts'
import { idleLane, laneEvent, type LaneOutput } from './lane-state.ts'
import { MarkdownStream } from './markdown-stream.ts'
import { partsText } from './block.ts'
import type { Line } from './spans.ts'
import type { Store } from './store.ts'
import { transcriptBlocks } from './transcript-blocks.ts'

const keptFolded = 50
const keptOfAgent = 200
const keptAgents = 30
/** Of an earlier conversation so much is shown when it is opened. */
const tailBlocks = 12

/** What a session's events do to the screen: finished pieces go to the scrollback, the rest is state. */
export class Conversation {
  readonly #store: Store
  readonly #display: Display
  readonly #width: () => number
  readonly #now: () => number
  #session: AgentSession | undefined
  #unsubscribe: () => void = () => undefined
  #clean = new CleanStream()
  #markdown = new MarkdownStream()
  /** Text of the answer that came and is not looked at yet. */
  #waiting: string[] = []
  /** How much of the answer came, and whether a row of it was written. */
  #streamed = 0
  #begun = false
  #folded: ToolBlock[] = []
  /** What sub-agents did, by lane, the last pieces. */
  readonly #ofAgents = new Map<string, UiBlock[]>()
  /** The text of the newest answer, for `/copy`. */
  #lastAnswer = ''

  constructor(parts: {
    readonly store: Store
    readonly display: Display
    readonly width: () => number
    readonly now: () => number
  }) {
    this.#store = parts.store
    this.#display = parts.display
    this.#width = parts.width
    this.#now = parts.now
  }

  get lastAnswer(): string {
    return this.#lastAnswer
  }

  /** Shows the end of what was said there and follows what comes. */
  attach(session: AgentSession): void {
    this.detach()
    this.#session = session
    const { log, harness } = session
    this.showTail(transcriptBlocks(log.path(log.leaf('main'))))
    this.#unsubscribe = harness.subscribe((event) => this.onEvent(event))
    this.#store.set({ main: idleLane('main'), agents: [], queue: pendingMessages(log, 'main') })
  }

  detach(): void {
    this.#unsubscribe()
    this.#unsubscribe = () => undefined
    this.#session = undefined
    this.#endAnswer('')
    this.#ofAgents.clear()
  }

  /** The last blocks of an earlier conversation. */
  showTail(blocks: readonly UiBlock[]): void {
    const shown = blocks.slice(-tailBlocks)
    if (shown.length < blocks.length) {
      this.say({
        type: 'notice',
        text: `${blocks.length - shown.length} earlier pieces of this conversation: /tree`,
        level: 'info',
      })
    }
    for (const block of shown) this.say(block)
    const last = blocks.findLast((block) => block.type === 'assistant')
    this.#lastAnswer = last?.type === 'assistant' ? last.text : ''
  }

  /** Writes a block to the scrollback. */
  say(block: UiBlock): void {
    this.#flush()
    if (block.type === 'tool') this.#folded = [...this.#folded.slice(-(keptFolded - 1)), block]
    this.#display.commitBlock(blockView(block, this.#width()))
  }

  /** A tool's block, the one so many before the last. */
  folded(back: number): ToolBlock | undefined {
    return this.#folded.at(-1 - back)
  }

  /** What a sub-agent did, as rows. */
  agentRows(lane: string): readonly Line[] {
    const width = this.#width()
    return (this.#ofAgents.get(lane) ?? []).flatMap((block, index) => [
      ...(index > 0 ? [[]] : []),
      ...blockView(block, width),
    ])
  }

  /** The open end of the answer. Takes what came since the last frame; what is final by now is written. */
  tail(): readonly Line[] {
    this.#flush()
    const width = inner(this.#width())
    const rows = this.#markdown.tail(width)
    return rows.length === 0 ? [] : assistantRows(rows, !this.#begun)
  }

  /** An event of the session's harness. */
  onEvent(event: HarnessEvent): void {
    const now = this.#now()
    const { state } = this.#store
    if (event.lane !== 'main' && event.lane !== '') return this.#ofAgent(event, now)
    if (event.type === 'run_started' && event.parent === undefined) this.#store.set({ agents: [], canContinue: false })
    const step = laneEvent(state.main, event, now, state.queue)
    this.#store.set({ main: step.state })
    if (
      event.type === 'queued' ||
      event.type === 'run_finished' ||
      event.type === 'abort_requested' ||
      event.type === 'message'
    )
      this.#readQueue()
    for (const output of step.output) this.#put(output)
  }

  #readQueue(): void {
    if (this.#session === undefined) return
    const waits = this.#store.state.queue.length > 0 || this.#session.harness.status('main').waiting > 0
    if (waits) this.#store.set({ queue: pendingMessages(this.#session.log, 'main') })
  }

  #put(output: LaneOutput): void {
    switch (output.type) {
      case 'block':
        this.#endAnswer('')
        this.say(output.block)
        return
      case 'delta':
        this.#waiting.push(output.text)
        this.#streamed += output.text.length
        this.#display.request()
        return
      case 'answer': {
        // Whoever came late saw only a part of it come.
        const missing = output.text.slice(this.#streamed)
        if (output.text.trim() !== '') this.#lastAnswer = output.text
        this.#endAnswer(missing)
        return
      }
      case 'discard':
        this.#discard()
        return
      default:
        output satisfies never
    }
  }

  /** Rows that are final now go to the scrollback. */
  #flush(): void {
    if (this.#waiting.length === 0) return
    const text = this.#clean.push(this.#waiting.splice(0).join(''))
    this.#write(this.#markdown.push(text, inner(this.#width())))
  }

  #write(rows: readonly Line[]): void {
    if (rows.length === 0) return
    const marked = assistantRows(rows, !this.#begun)
    if (this.#begun) this.#display.commit(marked)
    else this.#display.commitBlock(marked)
    this.#begun = true
  }

  #endAnswer(missing: string): void {
    if (missing !== '') this.#waiting.push(missing)
    const text = this.#clean.push(this.#waiting.splice(0).join('')) + this.#clean.end()
    const width = inner(this.#width())
    this.#write(this.#markdown.push(text, width))
    this.#write(this.#markdown.end(width))
    this.#begun = false
    this.#streamed = 0
  }

  /** What was not written yet is forgotten; what was written is said not to count. */
  #discard(): void {
    const shown = this.#begun
    this.#waiting = []
    this.#clean = new CleanStream()
    this.#markdown = new MarkdownStream()
    this.#begun = false
    this.#streamed = 0
    if (shown) this.say({ type: 'notice', text: 'the answer above broke off and does not count', level: 'warning' })
  }

  #ofAgent(event: HarnessEvent, now: number): void {
    const { lane } = event
    const { agents, main } = this.#store.state
    const known = agents.find((agent) => agent.state.lane === lane)
    if (known === undefined && event.type !== 'run_started') return
    const title =
      known?.title ??
      (event.type === 'run_started' && event.prompt !== undefined
        ? cleanLine(partsText(event.prompt.content), 120)
        : lane)
    const step = laneEvent(known?.state ?? idleLane(lane), event, now)
    const next = {
      state: step.state.since === 0 ? { ...step.state, since: known?.state.since ?? now } : step.state,
      title,
      done: event.type === 'run_finished',
    }
    const others = agents.filter((agent) => agent !== known)
    this.#store.set({
      agents:
        known === undefined
          ? [...others.slice(-(keptAgents - 1)), next]
          : agents.map((agent) => (agent === known ? next : agent)),
    })
    if (event.type === 'usage') {
      const { spent } = this.#store.state.main
      const { usage, cost = 0 } = event
      const input = spent.input + usage.input + usage.cacheRead + usage.cacheWrite
      this.#store.set({
        main: { ...main, spent: { input, output: spent.output + usage.output, cost: spent.cost + cost } },
      })
    }
    const blocks = this.#ofAgents.get(lane) ?? []
    for (const output of step.output) {
      if (output.type === 'block') blocks.push(output.block)
      if (output.type === 'answer' && output.text.trim() !== '') blocks.push({ type: 'assistant', text: output.text })
    }
    this.#ofAgents.set(lane, blocks.slice(-keptOfAgent))
    const { overlay } = this.#store.state
    if (overlay?.type === 'viewer' && overlay.from.type === 'agent' && overlay.from.lane === lane) {
      this.#store.set({ overlay: { ...overlay, rows: this.agentRows(lane) } })
    }
  }
}
