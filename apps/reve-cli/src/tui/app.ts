import { readFile, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { Agent, AgentSession } from '@reve/agent'
import { codeOf, isReveError, messageOf, ReveError } from '@reve/base'
import { type HarnessEvent, waitsForModel } from '@reve/harness'
import type { UserMessage } from '@reve/providers/model'
import { egressText, type EgressEvent, type MicroVmEvent } from '@reve/sandbox-microvm'
import { labelDraft, listSessions, readSession, sessionName } from '@reve/session-log'
import { partsText, type UiBlock } from './block.ts'
import { blockView } from './block-view.ts'
import { type Services, startServices } from './beside.ts'
import { cleanLine } from './clean.ts'
import { parseSlash } from './command-list.ts'
import {
  allCommands,
  changeModel,
  changeThinking,
  earlierPrompts,
  goBack,
  runCommand,
  sessionsFolder,
} from './commands.ts'
import { Completer } from './completer.ts'
import { Conversation } from './conversation.ts'
import { Display } from './display.ts'
import { cleared, setText } from './editor.ts'
import { durationText } from './figures.ts'
import type { Input } from './input-decoder.ts'
import { Jobs } from './jobs.ts'
import { type Action, handleInput } from './keys.ts'
import type { TuiDeps } from './ports.ts'
import { userMessage } from './prompt-images.ts'
import type { SessionChoice, Shell } from './shell.ts'
import { Store } from './store.ts'
import { Terminal } from './terminal.ts'
import { colourDepth, createPainter, linksWork, parseTheme, type Theme, themes } from './theme.ts'
import { transcriptBlocks } from './transcript-blocks.ts'
import { treeOf } from './tree.ts'
import { isBusy, type PickPurpose, remembered, withOlder } from './ui-state.ts'
import { view } from './view.ts'
import { vmCommand } from './vm-command.ts'

const tickMs = 250
const levels = ['info', 'good', 'warning', 'error'] as const

/** How the terminal's user interface ended. */
export type TuiEnd = {
  readonly reason: 'quit' | 'terminated' | 'hangup'
  /** Why the agent did not work here, if it did not. */
  readonly refused: unknown
}

/** The user interface of one folder, from its start to its end. */
export class App {
  readonly #deps: TuiDeps
  readonly #store: Store
  readonly #terminal: Terminal
  readonly #display: Display
  readonly #conversation: Conversation
  readonly #jobs: Jobs
  readonly #completer: Completer
  readonly #shell: Shell
  readonly #ended = Promise.withResolvers<TuiEnd['reason']>()
  readonly #over = new AbortController()
  #agent: Agent | undefined
  #session: AgentSession | undefined
  #services: Services | undefined
  #choice: SessionChoice
  #theme: Theme | undefined
  #isLight = false
  #tick: NodeJS.Timeout | undefined
  #refused: unknown
  /** The session is being closed or opened. */
  #changing: Promise<void> = Promise.resolve()

  constructor(deps: TuiDeps) {
    this.#deps = deps
    const { session, model, thinking } = deps.options ?? {}
    this.#choice = {
      session: session === undefined ? 'newest' : { file: session },
      ...(model !== undefined && { model }),
      ...(thinking !== undefined && { thinking }),
    }
    this.#store = new Store(() => this.#changed())
    this.#terminal = new Terminal(deps, {
      input: (inputs) => this.#input(inputs),
      resize: () => this.#display.resize(this.#terminal.columns),
      resumed: () => this.#display.resume(),
      beforeRelease: () => this.#display.end(),
      background: ([r, g, b]) => {
        this.#isLight = 0.299 * r + 0.587 * g + 0.114 * b > 0.5
        if (this.#theme === undefined) this.#paint()
      },
      end: (reason) => this.#ended.resolve(reason),
      stray: (text) => this.#note(text, 'warning'),
    })
    this.#display = new Display({
      columns: this.#terminal.columns,
      paint: this.#painter(),
      write: (bytes) => this.#terminal.write(bytes),
      frame: () =>
        view(
          this.#store.state,
          { tail: this.#conversation.tail() },
          { columns: this.#terminal.columns, rows: this.#terminal.rows },
          deps.now(),
        ),
      now: deps.now,
    })
    this.#conversation = new Conversation({
      store: this.#store,
      display: this.#display,
      width: () => this.#terminal.columns,
      now: deps.now,
    })
    this.#jobs = new Jobs(this.#store, deps.now)
    this.#shell = {
      deps,
      store: this.#store,
      conversation: this.#conversation,
      agent: () => this.#agent,
      session: () => this.#session,
      say: (block) => this.#say(block),
      note: (text, level = 'info') => this.#note(text, level),
      pick: (purpose, title, items, value) => {
        const selected = Math.max(
          0,
          items.findIndex((item) => item.value === value),
        )
        this.#store.set({
          overlay: { type: 'picker', purpose, title, items, filter: '', selected },
          completion: undefined,
        })
      },
      open: (overlay) => this.#store.set({ overlay, completion: undefined }),
      job: (label, work) => this.#jobs.run(label, work),
      change: (choice) => this.#change(choice),
      send: (text) => this.#deliver(text, [], 'enter'),
      heartbeats: () => this.#services?.heartbeats() ?? [],
      quit: () => this.#ended.resolve('quit'),
      setTheme: (name) => void this.#setTheme(name).catch((error: unknown) => this.#note(messageOf(error), 'error')),
      clipboard: (text) => this.#terminal.write(`\u001b]52;c;${Buffer.from(text).toString('base64')}\u0007`),
    }
    this.#completer = new Completer(this.#shell)
  }

  /** Runs until somebody leaves, or the terminal is gone. The terminal is as it was then. */
  async run(): Promise<TuiEnd> {
    this.#terminal.start()
    this.#display.request(true)
    const begun = this.#begin().catch((error: unknown) => this.#refuse(error))
    const reason = await this.#ended.promise
    this.#over.abort()
    this.#jobs.endAll()
    clearInterval(this.#tick)
    this.#completer.stop()
    await begun
    await this.#changing
    await this.#closeSession()
    try {
      await this.#agent?.close()
    } finally {
      this.#display.draw()
      await this.#terminal.stop()
    }
    return { reason, refused: this.#refused }
  }

  async #begin(): Promise<void> {
    const {
      deps: { options },
    } = this.#shell
    const agent = await this.#deps.openAgent({
      onVmEvent: (event) => this.#vmEvent(event),
      onEgress: (event) => this.#egress(event),
      onNotice: (notice) => this.#note(notice, 'warning'),
      onLog: (source, text) => this.#note(`${source}: ${text}`),
    })
    this.#agent = agent
    const { root } = agent.info
    await this.#completer.begin(join(root, 'workspace'))
    this.#footer({
      place: placeOf(root, this.#deps.home),
      model: agent.info.model ?? 'no model',
      thinking: String(agent.info.thinking ?? ''),
    })
    await this.#setTheme(options?.theme).catch((error: unknown) => this.#note(messageOf(error), 'warning'))
    for (const problem of (await agent.skills()).problems) this.#note(`left out: ${problem}`, 'warning')
    await (this.#changing = this.#open(this.#choice))
    void earlierPrompts(root, this.#session?.log.file).then(
      (older) => this.#store.set({ history: withOlder(this.#store.state.history, older) }),
      (error: unknown) => this.#note(messageOf(error), 'warning'),
    )
    if (this.#store.state.phase.type !== 'ready') return
    void this.#checkVm(agent)
    const { early } = this.#store.state
    this.#store.set({ early: [] })
    for (const text of early) await this.#deliver(text, [], 'follow_up')
  }

  /** Nobody has to wait for it: what needs the VM waits by itself. */
  async #checkVm(agent: Agent): Promise<void> {
    const began = this.#deps.now()
    try {
      await (this.#deps.checkVm?.(agent, this.#over.signal) ?? agent.vm.start({ signal: this.#over.signal }))
      this.#note(`the sandbox is ready (${durationText(this.#deps.now() - began)})`, 'good')
    } catch (error) {
      if (!this.#over.signal.aborted) this.#refuse(error)
    } finally {
      this.#store.set({ vm: undefined })
    }
  }

  #refuse(error: unknown): void {
    this.#refused = error
    this.#note(messageOf(error), 'error')
    if (isReveError(error) && error.hint !== undefined && !error.message.includes(error.hint)) this.#note(error.hint)
    this.#store.set({ phase: { type: 'refused', reason: messageOf(error) }, vm: undefined })
  }

  async #open(choice: SessionChoice): Promise<void> {
    const agent = this.#agent
    if (agent === undefined) return
    this.#store.set({ phase: { type: 'opening' } })
    let session: AgentSession
    try {
      session = await this.#openOrNew(agent, choice)
    } catch (error) {
      if (codeOf(error) !== 'locked' && codeOf(error) !== 'lock_held') throw error
      return this.#read(agent, choice, error)
    }
    this.#session = session
    this.#choice = choice
    this.#conversation.attach(session)
    this.#store.set({ phase: { type: 'ready' }, canContinue: false })
    const { log, model, harness } = session
    const name = sessionName(log)
    this.#footer({
      model: model.id === 'none/none' ? 'no model: /model' : model.id,
      session: name === undefined ? undefined : cleanLine(name, 60),
      contextWindow: model.contextWindow,
    })
    harness.subscribe((event) => this.#follow(event))
    if (log.repaired !== undefined) this.#note("the session's last line was incomplete and was mended", 'warning')
    const { lanes } = await harness.recover()
    for (const lane of lanes) this.#sayRecovered(lane)
    const waits = waitsForModel(log.path(log.leaf('main')), { model: model.id })
    this.#store.set({ canContinue: waits })
    if (waits) this.#note('this conversation was interrupted; Enter goes on, or say something else', 'warning')
    if (this.#deps.options?.services !== false)
      this.#services = startServices(agent, session, (block) => this.#say(block))
  }

  async #openOrNew(agent: Agent, choice: SessionChoice): Promise<AgentSession> {
    const { session, model, thinking } = choice
    const open = (which: SessionChoice['session'], chosen: string | null | undefined): Promise<AgentSession> =>
      agent.openSession({
        session: which,
        ...(chosen !== undefined && { model: chosen }),
        ...(thinking !== undefined && { thinking }),
      })
    const orNew = async (chosen: string | null | undefined): Promise<AgentSession> => {
      try {
        return await open(session, chosen)
      } catch (error) {
        if (codeOf(error) !== 'no_session') throw error
        return open('new', chosen)
      }
    }
    try {
      return await orNew(model)
    } catch (error) {
      // Everything but asking it works without a model.
      if (codeOf(error) !== 'no_model' && codeOf(error) !== 'unknown_model') throw error
      this.#note(messageOf(error), 'error')
      return orNew(null)
    }
  }

  /** Another process writes the session: it can be looked at. */
  async #read(agent: Agent, { session }: SessionChoice, locked: unknown): Promise<void> {
    const newest = (await listSessions(sessionsFolder(agent.info.root)))[0]
    const file = typeof session === 'object' ? session.file : newest?.file
    if (file !== undefined) {
      const held = await readSession(file)
      this.#conversation.showTail(transcriptBlocks(held.path(held.leaf('main'))))
    }
    this.#note(`${messageOf(locked)}. This is what it says so far; /new starts a session of your own.`, 'warning')
    const pid = locked instanceof ReveError && 'pid' in locked ? ` ${String(locked.pid)}` : ''
    this.#store.set({ phase: { type: 'reading', holder: `process${pid}` } })
  }

  #sayRecovered(lane: Awaited<ReturnType<AgentSession['harness']['recover']>>['lanes'][number]): void {
    const where = lane.lane === 'main' ? '' : ` (${lane.lane})`
    this.#note(`the last ${lane.operation}${where} was interrupted; it is closed and nothing is lost`, 'warning')
    for (const { toolName } of lane.unknown)
      this.#note(
        `${toolName} was running: its outcome is not known, it is not run again, and the model is told so`,
        'warning',
      )
    for (const { toolName } of lane.replayed) this.#note(`${toolName} only reads: it was run again`)
    this.#giveBack(lane.returned)
  }

  async #closeSession(): Promise<void> {
    const [services, session] = [this.#services, this.#session]
    this.#services = undefined
    this.#session = undefined
    await services?.[Symbol.asyncDispose]()
    await session?.[Symbol.asyncDispose]()
    this.#conversation.detach()
  }

  async #change(choice: SessionChoice): Promise<void> {
    if (this.#store.state.main.work !== 'idle') throw new Error('it is at work: Esc interrupts it, then try again')
    const { model, thinking } = this.#choice
    const next = { ...(model !== undefined && { model }), ...(thinking !== undefined && { thinking }), ...choice }
    const before = this.#session?.log.file
    this.#changing = (async () => {
      await this.#closeSession()
      try {
        await this.#open(next)
      } catch (error) {
        this.#note(messageOf(error), 'error')
        // Back to what was open.
        if (before !== undefined) await this.#open({ ...this.#choice, session: { file: before } })
      }
    })()
    await this.#changing
  }

  // ---- what comes from the keyboard

  #input(inputs: readonly Input[]): void {
    const size = { width: Math.max(1, this.#terminal.columns - 2), height: Math.max(1, this.#terminal.rows - 1) }
    for (const input of inputs) {
      const { state, actions } = handleInput(this.#store.state, input, size)
      const typed = state.editor !== this.#store.state.editor || state.closedFor !== this.#store.state.closedFor
      this.#store.set(state)
      if (typed || state.completion !== undefined) this.#completer.update()
      for (const action of actions)
        void this.#act(action).catch((error: unknown) => this.#note(messageOf(error), 'error'))
    }
    this.#display.request(true)
  }

  async #act(action: Action): Promise<void> {
    switch (action.type) {
      case 'send':
        return this.#submit(action.text, action.images, action.how)
      case 'continue':
        return this.#go(() => this.#opened().harness.continue())
      case 'interrupt':
        return this.#interrupt()
      case 'quit':
        return this.#ended.resolve('quit')
      case 'suspend':
        return this.#terminal.suspend()
      case 'edit_outside':
        return this.#editOutside()
      case 'take_back':
        return this.#takeBack(action.entryId)
      case 'picked':
        return this.#picked(action.purpose, action.value)
      case 'label': {
        const { log } = this.#opened()
        await log.append([labelDraft(action.entryId, action.label === '' ? null : action.label)])
        return this.#showTree(action.entryId)
      }
      case 'tree_tools':
        return this.#showTree(undefined, action.tools)
      case 'show_folded': {
        const block = this.#conversation.folded(action.back)
        if (block === undefined) return
        const rows = blockView(block, this.#terminal.columns, true)
        const from = { type: 'folded', back: action.back } as const
        return this.#shell.open({ type: 'viewer', title: block.name, rows, from, offset: 0, follow: false })
      }
      case 'redraw':
        this.#terminal.write('\u001b[2J\u001b[H')
        return this.#display.forget()
      default:
        return action satisfies never
    }
  }

  async #submit(text: string, images: readonly string[], how: 'enter' | 'follow_up'): Promise<void> {
    this.#store.set({ history: remembered(this.#store.state.history, text) })
    const slash = parseSlash(text)
    if (slash !== undefined && (how === 'enter' || allCommands(this.#shell).some(({ name }) => name === slash.name)))
      return runCommand(this.#shell, slash.name, slash.args)
    const [, bang, command = ''] = /^(!!?)\s*([\s\S]+)$/.exec(text) ?? []
    if (bang !== undefined) return this.#vmCommand(command, bang === '!')
    if (this.#store.state.phase.type === 'opening') {
      this.#store.set({ early: [...this.#store.state.early, text] })
      return
    }
    return this.#deliver(text, images, how)
  }

  /** A run with this prompt, or the message into the one that goes on. */
  async #deliver(text: string, images: readonly string[], how: 'enter' | 'follow_up'): Promise<void> {
    const { harness } = this.#opened()
    try {
      const message = await userMessage(text, images, this.#deps.home)
      if (harness.status('main').state === 'idle') return await this.#go(() => harness.prompt(message))
      await (how === 'follow_up' ? harness.followUp(message) : harness.steer(message))
    } catch (error) {
      // It ended in this very moment: what was said begins the next one.
      if (codeOf(error) === 'lane_idle') return this.#deliver(text, images, how)
      this.#putBack(text)
      throw error
    }
  }

  /** Starts a run and sees to its end; resolves when it has begun. */
  async #go(run: () => ReturnType<AgentSession['harness']['prompt']>): Promise<void> {
    for (const note of (await this.#agent?.refresh()) ?? []) this.#note(note, 'warning')
    this.#store.set({ canContinue: false })
    void run().then(
      ({ outcome, reason, error, returned }) => {
        if (outcome === 'failed' || outcome === 'rejected')
          this.#note(error?.message ?? `the run ${outcome}: ${reason ?? 'no reason was given'}`, 'error')
        const refusal = this.#session?.refusal()
        if (refusal !== undefined) this.#refuse(refusal)
        this.#giveBack(returned)
        this.#store.set({ canContinue: outcome === 'aborted' || (outcome === 'failed' && reason !== 'max_turns') })
      },
      (error: unknown) => this.#note(messageOf(error), 'error'),
    )
  }

  async #interrupt(): Promise<void> {
    if (this.#jobs.endLast()) return
    const { harness } = this.#session ?? {}
    if (harness === undefined) return
    // A moment passes until it is written down; whoever pressed the key sees at once that it was.
    this.#store.set({ main: { ...this.#store.state.main, aborting: true } })
    await harness.abort()
  }

  async #vmCommand(command: string, tells: boolean): Promise<void> {
    const agent = this.#agent
    if (agent === undefined) throw new Error('the agent is not open yet')
    const done = await this.#jobs.run(command, (signal, show) => vmCommand(agent, command, signal, show))
    if (done === undefined) return this.#note(`stopped: ${cleanLine(command, 200)}`, 'warning')
    this.#say(done.block)
    this.#completer.refresh()
    if (tells) await this.#opened().harness.nextRun(done.said)
  }

  async #editOutside(): Promise<void> {
    const { editFile, temporaryFolder, process } = this.#deps
    if (editFile === undefined) return this.#note('no editor: set VISUAL or EDITOR', 'warning')
    const file = join(temporaryFolder, `reve-prompt-${process.pid}-${this.#deps.now()}.md`)
    const { expand } = await import('./editor.ts')
    await writeFile(file, expand(this.#store.state.editor).text, { mode: 0o600, flag: 'wx' })
    try {
      await this.#terminal.lend(() => editFile(file))
      const text = (await readFile(file, 'utf8')).replace(/\n$/, '')
      this.#store.set({ editor: setText(this.#store.state.editor, text) })
    } finally {
      await rm(file, { force: true })
    }
  }

  async #takeBack(entryId: string | undefined): Promise<void> {
    const id = entryId ?? this.#store.state.queue.at(-1)?.entryId
    if (id === undefined) {
      const { early } = this.#store.state
      const last = early.at(-1)
      if (last === undefined) return
      this.#store.set({ early: early.slice(0, -1) })
      return this.#putBack(last)
    }
    const message = await this.#opened().harness.withdraw(id)
    this.#store.set({ queue: this.#store.state.queue.filter((queued) => queued.entryId !== id) })
    if (message === undefined) this.#note('it was delivered already', 'warning')
    else this.#giveBack([message])
  }

  async #picked(purpose: PickPurpose, value: string): Promise<void> {
    switch (purpose.type) {
      case 'model':
        return changeModel(this.#shell, value)
      case 'thinking':
        return changeThinking(this.#shell, value)
      case 'theme':
        return this.#setTheme(value)
      case 'session':
        return this.#change({ session: { file: value } })
      case 'queue':
        return this.#takeBack(value)
      case 'rewind':
        return goBack(this.#shell, value, true, undefined)
      case 'go_back':
        return goBack(this.#shell, purpose.entryId, value === 'files', purpose.text)
      case 'agent':
        return this.#shell.open({
          type: 'viewer',
          title: value,
          rows: this.#conversation.agentRows(value),
          from: { type: 'agent', lane: value },
          offset: 0,
          follow: true,
        })
      case 'skill':
        return runCommand(this.#shell, 'skills', value)
      case 'held':
        return
      default:
        return purpose satisfies never
    }
  }

  #showTree(selected: string | undefined, tools?: boolean): void {
    const { log } = this.#opened()
    const { overlay } = this.#store.state
    const before = overlay?.type === 'tree' ? overlay.tree : undefined
    const tree = treeOf(log, log.leaf('main'), tools ?? before?.tools ?? false)
    const id = selected ?? before?.nodes[before.selected]?.id
    const at = tree.nodes.findIndex((node) => node.id === id)
    this.#store.set({ overlay: { type: 'tree', tree: at < 0 ? tree : { ...tree, selected: at } } })
  }

  #opened(): AgentSession {
    if (this.#session === undefined) throw new Error('there is no session open')
    return this.#session
  }

  // ---- what is shown

  #say(block: UiBlock): void {
    this.#conversation.say(block)
  }

  #note(text: string, level: (typeof levels)[number] = 'info'): void {
    this.#say({ type: 'notice', text, level })
  }

  #giveBack(messages: readonly UserMessage[]): void {
    const texts = messages.map(({ content }) => partsText(content))
    if (texts.length > 0) this.#putBack(texts.join('\n\n'))
  }

  /** What was not delivered is in the prompt again, before what is being written. */
  #putBack(text: string): void {
    const { editor } = this.#store.state
    const whole = editor.text === '' ? text : `${text}\n\n${editor.text}`
    this.#store.set({ editor: editor.text === '' ? setText(cleared(editor), text) : setText(editor, whole) })
  }

  #follow(event: HarnessEvent): void {
    // Files the agent just made can be named at once.
    if (event.type === 'run_finished' && event.lane === 'main') this.#completer.refresh()
  }

  #vmEvent(event: MicroVmEvent): void {
    switch (event.type) {
      case 'notice':
        return this.#note(event.text, 'warning')
      case 'stage':
        switch (event.state) {
          case 'start':
          case 'progress': {
            const { vm } = this.#store.state
            return this.#store.set({ vm: { label: event.label, since: vm?.since ?? this.#deps.now() } })
          }
          case 'done':
            return this.#store.set({ vm: undefined })
          case 'failed':
            this.#store.set({ vm: undefined })
            return this.#note(`${event.label} failed`, 'error')
          default:
            return event.state satisfies never
        }
      default:
        return event satisfies never
    }
  }

  #egress(event: EgressEvent): void {
    switch (event.type) {
      case 'connected':
      case 'closed':
      case 'secret_used':
        return
      case 'denied':
      case 'unreachable':
      case 'tls_failed':
      case 'secret_missing':
      case 'secret_unusable':
      case 'secret_withheld':
      case 'suppressed':
        return this.#note(egressText(event), 'warning')
      default:
        return event satisfies never
    }
  }

  #footer(part: Partial<ReturnType<() => Store['state']['footer']>>): void {
    this.#store.set({ footer: { ...this.#store.state.footer, ...part } })
  }

  async #setTheme(name: string | undefined): Promise<void> {
    if (name === undefined) {
      const file = join(this.#agent?.info.root ?? '.', 'theme.yml')
      const source = await readFile(file, 'utf8').catch((error: unknown) => {
        if (codeOf(error) === 'ENOENT') return undefined
        throw error
      })
      if (source === undefined) return
      this.#theme = parseTheme(source, 'theme.yml')
    } else {
      this.#theme = themes[name] ?? parseTheme(await readFile(name, 'utf8'), basename(name))
    }
    this.#paint()
  }

  #painter() {
    const { env } = this.#deps
    const theme = this.#theme ?? (this.#isLight ? themes['light'] : themes['dark']) ?? { name: 'none', colours: {} }
    return createPainter(theme, colourDepth(env), { links: linksWork(env) })
  }

  #paint(): void {
    this.#display.paint = this.#painter()
  }

  #changed(): void {
    this.#display.request()
    const moves = isBusy(this.#store.state) || this.#store.state.vm !== undefined
    if (moves && this.#tick === undefined) this.#tick = setInterval(() => this.#display.request(), tickMs)
    if (moves || this.#tick === undefined) return
    clearInterval(this.#tick)
    this.#tick = undefined
  }
}

function placeOf(root: string, home: string | undefined): string {
  return home !== undefined && root.startsWith(`${home}/`) ? `~${root.slice(home.length)}` : root
}
