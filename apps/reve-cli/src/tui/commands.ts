import { join } from 'node:path'
import { newSessionFile } from '@reve/agent'
import { messageOf, nearest } from '@reve/base'
import type { LedgerReport, Spending } from '@reve/harness'
import { forkSession, listSessions, nameDraft, readSession } from '@reve/session-log'
import { partsText } from './block.ts'
import { cleanLine } from './clean.ts'
import { exportFormats, slashCommands, thinkingLevels, type SlashCommand } from './command-list.ts'
import { agoText, clockText, costText, countText } from './figures.ts'
import type { Shell } from './shell.ts'
import { themes } from './theme.ts'
import { treeOf } from './tree.ts'
import { promptsOf } from './transcript-blocks.ts'
import type { PickItem } from './ui-state.ts'

/** Where an agent's sessions are. */
export const sessionsFolder = (root: string): string => join(root, '.reve', 'sessions')

/** The terminal's commands and those of the agent's Lua files. */
export function allCommands(shell: Pick<Shell, 'deps' | 'agent'>): readonly SlashCommand[] {
  const own = new Set(slashCommands.map(({ name }) => name))
  const added = (shell.agent()?.commands() ?? [])
    .filter(({ name }) => !own.has(name))
    .map(({ name, description, args }): SlashCommand => ({
      name,
      about: cleanLine(description, 100),
      takes: args === undefined ? 'none' : 'text',
      ...(args !== undefined && { usage: cleanLine(args, 60) }),
    }))
  return [...slashCommands, ...added]
}

/** Runs a command. What goes wrong is said, never thrown. */
export async function runCommand(shell: Shell, name: string, args: string): Promise<void> {
  try {
    await perform(shell, name, args)
  } catch (error) {
    shell.note(messageOf(error), 'error')
  }
}

async function perform(shell: Shell, name: string, args: string): Promise<void> {
  switch (name) {
    case 'help':
      return help(shell)
    case 'model':
      return model(shell, args)
    case 'thinking':
      return thinking(shell, args)
    case 'compact':
      return compact(shell, args)
    case 'tree':
      return tree(shell)
    case 'fork':
      return fork(shell, args)
    case 'rewind':
      return rewind(shell, args)
    case 'new':
      await shell.change({ session: 'new' })
      return shell.note('a new session', 'good')
    case 'resume':
      return resume(shell, args)
    case 'name':
      return nameSession(shell, args)
    case 'queue':
      return queue(shell, args)
    case 'skills':
      return skills(shell, args)
    case 'tools':
      return tools(shell)
    case 'sandbox':
      return sandbox(shell)
    case 'cost':
      return cost(shell)
    case 'export':
      return exportTo(shell, args)
    case 'copy':
      return copy(shell)
    case 'agents':
      return agents(shell)
    case 'theme':
      if (args !== '') return shell.setTheme(args)
      return shell.pick(
        { type: 'theme' },
        'Colours',
        Object.keys(themes).map((value) => ({ value, label: value })),
      )
    case 'quit':
    case 'exit':
      return shell.quit()
    default:
      return lua(shell, name, args)
  }
}

/** The session, or a sentence that there is none yet. */
function opened(shell: Shell): NonNullable<ReturnType<Shell['session']>> {
  const session = shell.session()
  if (session === undefined) throw new Error('there is no session open yet')
  return session
}

function help(shell: Shell): void {
  const commands = allCommands(shell).map(({ name, about, usage }) => `| \`/${name}\` | ${usage ?? ''} | ${about} |`)
  const beats = shell.heartbeats()
  shell.say({
    type: 'answer',
    title: 'Keys and commands',
    text: `Type and press Enter. While it works, Enter **steers** it and Alt-Enter says something for **afterwards**.

- \`@\` a file of the workspace, \`/\` a command, Tab or Enter accept
- \`!command\` runs in the microVM and the model gets to know; \`!!command\` it does not
- Esc interrupts, twice clears · Ctrl-C twice leaves · Ctrl-Z suspends
- Shift-Enter, Ctrl-J or \`\\\` at the end: a new line · Ctrl-G your editor · Ctrl-O what was folded
- ↑ ↓ earlier prompts · Alt-↑ takes the last queued message back · Ctrl-_ undoes · Ctrl-L draws anew

| command | | |
|---|---|---|
${commands.join('\n')}
${beats.length === 0 ? '' : `\nHeartbeats: ${beats.map(({ task, next }) => `${task} in ${clockText(next - shell.deps.now())}`).join(', ')}`}`,
  })
}

async function model(shell: Shell, args: string): Promise<void> {
  if (args !== '') return changeModel(shell, args)
  const current = shell.store.state.footer.model
  const found = await shell.job(
    'asking the providers for their models',
    (signal) => shell.agent()?.discoverModels({ signal }) ?? Promise.resolve(undefined),
  )
  if (found === undefined) return
  for (const [provider, problem] of Object.entries(found.failures)) shell.note(`${provider}: ${problem}`, 'warning')
  const items = found.models.map((offer): PickItem => ({
    value: offer.reference,
    label: offer.reference,
    ...(offer.contextWindow === undefined ? {} : { detail: `${countText(offer.contextWindow)} context` }),
  }))
  shell.pick({ type: 'model' }, 'Model', items, current)
}

/** Goes on with another model, in the same session. */
export async function changeModel(shell: Shell, reference: string): Promise<void> {
  const session = shell.session()
  await shell.change({ session: session === undefined ? 'newest' : { file: session.log.file }, model: reference })
}

async function thinking(shell: Shell, args: string): Promise<void> {
  if (args === '') {
    return shell.pick(
      { type: 'thinking' },
      'Thinking',
      thinkingLevels.map((value) => ({ value, label: value })),
      shell.store.state.footer.thinking,
    )
  }
  return changeThinking(shell, args)
}

/** Goes on with another level, in the same session. */
export async function changeThinking(shell: Shell, word: string): Promise<void> {
  const level = thinkingLevels.find((known) => known === word)
  const tokens = /^\d{1,7}$/.test(word) ? Number(word) : undefined
  if (level === undefined && tokens === undefined)
    throw new Error(`"${word}" is no level: ${thinkingLevels.join(', ')}, or a number of tokens`)
  const { log } = opened(shell)
  const chosen = tokens ?? asLevel(level)
  await shell.change({ session: { file: log.file }, ...(chosen === undefined ? {} : { thinking: chosen }) })
}

function asLevel(word: string | undefined): 'off' | 'minimal' | 'low' | 'medium' | 'high' | undefined {
  switch (word) {
    case 'off':
    case 'minimal':
    case 'low':
    case 'medium':
    case 'high':
      return word
    default:
      return undefined
  }
}

async function compact(shell: Shell, instructions: string): Promise<void> {
  const { harness } = opened(shell)
  // It tells its course and its end by events.
  await harness.compact(instructions === '' ? {} : { instructions })
}

function tree(shell: Shell): void {
  const { log } = opened(shell)
  shell.open({ type: 'tree', tree: treeOf(log, log.leaf('main')) })
}

async function fork(shell: Shell, name: string): Promise<void> {
  const { log } = opened(shell)
  const root = shell.agent()?.info.root
  if (root === undefined) return
  const target = await newSessionFile(sessionsFolder(root), shell.deps.now)
  const made = await forkSession(log.file, target, { now: shell.deps.now, ...(name === '' ? {} : { name }) })
  shell.note(`a new session begins with the ${made.entries} entries of this one; this one stays as it is`, 'good')
  await shell.change({ session: { file: made.target } })
}

async function rewind(shell: Shell, word: string): Promise<void> {
  const { log } = opened(shell)
  const { nodes } = treeOf(log, log.leaf('main'))
  if (word !== '') {
    const node = nodes.find(({ id, label }) => id === word || label === word)
    if (node === undefined) throw new Error(`there is no entry "${word}": /rewind lists them, /tree shows all`)
    return goBack(shell, node.id, true, undefined)
  }
  const items = nodes
    .filter(({ current, kind, label }) => current && (kind === 'user' || label !== undefined))
    .toReversed()
    .map(({ id, text, label, ts }): PickItem => ({
      value: id,
      label: label === undefined ? text : `[${label}] ${text}`,
      detail: agoText(shell.deps.now() - Date.parse(ts)),
    }))
  shell.pick({ type: 'rewind' }, 'Go back to, and say it again', items)
}

/** The conversation goes on after an entry, with the files of then or without. */
export async function goBack(
  shell: Shell,
  entryId: string | null,
  files: boolean,
  text: string | undefined,
): Promise<void> {
  const session = opened(shell)
  const done = await session.rewind(entryId, { files })
  const { files: restored } = done
  const said =
    restored === undefined
      ? files
        ? 'no file was changed since'
        : 'the files are as they were'
      : `${restored.written} files written, ${restored.removed} removed`
  shell.note(`the conversation goes on from there; ${said}`, 'good')
  if (restored !== undefined && restored.inTheWay.length > 0)
    shell.note(`left as they are: ${restored.inTheWay.join(', ')}`, 'warning')
  if (text !== undefined)
    shell.store.set({
      editor: { ...shell.store.state.editor, text: cleanEditorText(text), cursor: cleanEditorText(text).length },
    })
}

const cleanEditorText = (text: string): string => text.replaceAll(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g, ' ')

async function resume(shell: Shell, word: string): Promise<void> {
  const found = await sessionItems(shell)
  if (word !== '') {
    const one = found.find(({ value, label }) => value === word || value.endsWith(`/${word}`) || label === word)
    if (one === undefined) throw new Error(`there is no session "${word}": /resume lists them`)
    return shell.change({ session: { file: one.value } })
  }
  shell.pick({ type: 'session' }, 'Sessions', found, shell.session()?.log.file)
}

/** The sessions of the folder, the last used first. */
export async function sessionItems(shell: Pick<Shell, 'agent' | 'deps'>): Promise<readonly PickItem[]> {
  const root = shell.agent()?.info.root
  if (root === undefined) return []
  const all = await listSessions(sessionsFolder(root))
  return all.map((summary): PickItem => {
    const ago = agoText(shell.deps.now() - Date.parse(summary.modified))
    if (summary.kind === 'broken')
      return {
        value: summary.file,
        label: summary.file.slice(summary.file.lastIndexOf('/') + 1),
        detail: `${ago} · ${summary.problem.message}`,
      }
    const label = summary.name ?? summary.title ?? '(nothing said yet)'
    return { value: summary.file, label: cleanLine(label, 120), detail: ago }
  })
}

async function nameSession(shell: Shell, name: string): Promise<void> {
  if (name === '') throw new Error('give it a name: /name the parser')
  const { log } = opened(shell)
  await log.append([nameDraft(name)])
  shell.store.set({ footer: { ...shell.store.state.footer, session: cleanLine(name, 60) } })
  shell.note(`this session is called "${name}" now`, 'good')
}

async function queue(shell: Shell, text: string): Promise<void> {
  if (text !== '') {
    const { harness } = opened(shell)
    if (harness.status('main').state !== 'running') return shell.send(text)
    await harness.followUp(text)
    return
  }
  const waiting = shell.store.state.queue
  if (waiting.length === 0) return shell.note('nothing waits')
  const items = waiting.map(({ entryId, delivery, message }): PickItem => ({
    value: entryId,
    label: cleanLine(partsText(message.content), 120),
    detail: delivery,
  }))
  shell.pick({ type: 'queue' }, 'Waiting messages: Enter takes one back to the prompt', items)
}

async function skills(shell: Shell, args: string): Promise<void> {
  const found = await shell.agent()?.skills()
  if (found === undefined) return
  const [, word, task] = /^(\S+)\s*([\s\S]*)$/.exec(args) ?? []
  if (word !== undefined) {
    const skill = found.skills.find(({ name }) => name === word)
    if (skill === undefined)
      throw new Error(
        `there is no skill "${word}": it has ${found.skills.map(({ name }) => name).join(', ') || 'none'}`,
      )
    return shell.send(
      `Read ${skill.path} and follow this skill.${task === undefined || task === '' ? '' : `\n\n${task}`}`,
    )
  }
  const lines = found.skills.map(({ name, description, path }) => `- **${name}** ${description} (\`${path}\`)`)
  const problems = found.problems.map((problem) => `- ${problem}`)
  const text = [
    lines.length === 0 ? 'None: `workspace/skills/<name>/SKILL.md` makes one.' : lines.join('\n'),
    ...(problems.length === 0 ? [] : [`Left out:\n\n${problems.join('\n')}`]),
  ]
  shell.say({ type: 'answer', title: 'Skills', text: text.join('\n\n') })
}

const builtinTools = ['bash', 'read', 'write', 'edit', 'ls', 'glob', 'grep', 'task'] as const

function tools(shell: Shell): void {
  const agent = shell.agent()
  const own = agent?.info.tools ?? []
  const lines = [
    ...builtinTools.filter((name) => !own.some((tool) => tool.name === name)).map((name) => `- **${name}** built in`),
    ...own.map(({ name, description }) => `- **${name}** ${cleanLine(description, 200)}`),
    ...(agent?.mcpServers() ?? []).map(
      ({ name, state, tools: count, problems }) =>
        `- **${name}__…** MCP server, ${state === 'up' ? `${count} tools` : state}${problems.length > 0 ? `: ${cleanLine(problems.join('; '), 200)}` : ''}`,
    ),
  ]
  shell.say({ type: 'answer', title: 'Tools', text: lines.join('\n') })
}

async function sandbox(shell: Shell): Promise<void> {
  const agent = shell.agent()
  if (agent === undefined) return
  const { policy } = agent.info
  const status = agent.vm.status()
  const used = await agent.vm.metrics()
  const figures =
    used === undefined
      ? []
      : [
          `- up ${clockText(used.uptimeMs)}, ${countText(used.memoryBytes / 1024 / 1024)} MB of this machine's memory, ${used.commands.running} commands run`,
        ]
  shell.say({
    type: 'answer',
    title: 'Sandbox',
    text: [
      `- microVM **${status.state}** (${status.backend}${status.accelerator === undefined ? '' : `, ${status.accelerator}`}), ${policy.image}, ${policy.cpus} cpu, ${policy.memory} MB`,
      ...figures,
      `- reaches ${policy.allow.length === 0 ? 'nothing' : policy.allow.map((host) => `\`${host}\``).join(', ')}`,
      `- secrets ${policy.secrets.length === 0 ? 'none' : policy.secrets.map(({ env, hosts }) => `\`${env}\` for ${hosts.join(', ')}`).join('; ')}`,
    ].join('\n'),
  })
}

function cost(shell: Shell): void {
  const report = opened(shell).harness.spending()
  const today = new Date(shell.deps.now()).toISOString().slice(0, 10)
  const row = (what: string, spent: Spending | undefined): string =>
    spent === undefined
      ? ''
      : `| ${what} | ${spent.requests} | ${countText(spent.usage.input + spent.usage.cacheRead + spent.usage.cacheWrite)} | ${countText(spent.usage.cacheRead)} | ${countText(spent.usage.output)} | ${spent.unpriced === spent.requests ? 'no price' : costText(spent.cost)} |`
  const lanes = [...report.lanes].filter(([lane]) => lane !== 'main')
  const rows = [
    row('this session', report.session),
    row('today', report.days.get(today)),
    row('sub-agents', lanes.length === 0 ? undefined : together(lanes)),
  ]
  shell.say({
    type: 'answer',
    title: 'Spent',
    text: `| | requests | tokens in | of them cached | out | cost |\n|---|--:|--:|--:|--:|--:|\n${rows.filter((line) => line !== '').join('\n')}`,
  })
}

function together(lanes: readonly (readonly [string, Spending])[]): LedgerReport['session'] | undefined {
  const [first, ...rest] = lanes.map(([, spent]) => spent)
  if (first === undefined) return undefined
  return rest.reduce(
    (sum, { requests, usage, cost: usd, unpriced }) => ({
      requests: sum.requests + requests,
      usage: {
        input: sum.usage.input + usage.input,
        cacheRead: sum.usage.cacheRead + usage.cacheRead,
        cacheWrite: sum.usage.cacheWrite + usage.cacheWrite,
        output: sum.usage.output + usage.output,
        reasoning: sum.usage.reasoning + usage.reasoning,
      },
      cost: sum.cost + usd,
      unpriced: sum.unpriced + unpriced,
    }),
    first,
  )
}

async function exportTo(shell: Shell, args: string): Promise<void> {
  const { log } = opened(shell)
  const write = shell.deps.beside?.exportSession
  if (write === undefined) throw new Error('this terminal cannot export; use: reve sessions export')
  const [, word = '', rest = ''] = /^(\S*)\s*(.*)$/.exec(args) ?? []
  const format = exportFormats.find((known) => known === word)
  if (word !== '' && format === undefined) throw new Error(`"${word}" is no format: ${exportFormats.join(', ')}`)
  const file = await write(log.file, format ?? 'md', rest === '' ? undefined : rest)
  shell.note(`written to ${file}`, 'good')
}

function copy(shell: Shell): void {
  const text = shell.conversation.lastAnswer
  if (text === '') return shell.note('there is no answer yet')
  shell.clipboard(text)
  shell.note(`the last answer (${text.length} characters) is in the clipboard, where the terminal allows it`, 'good')
}

function agents(shell: Shell): void {
  const { agents: all } = shell.store.state
  if (all.length === 0) return shell.note('no sub-agent worked in this run')
  const items = all.map(({ state, title, done }): PickItem => ({
    value: state.lane,
    label: title,
    detail: done ? 'done' : 'works',
  }))
  shell.pick({ type: 'agent' }, 'Sub-agents', items)
}

async function lua(shell: Shell, name: string, args: string): Promise<void> {
  const known = allCommands(shell).some((command) => command.name === name)
  if (!known) {
    const close = nearest(
      name,
      allCommands(shell).map((command) => command.name),
    )
    throw new Error(
      `there is no command /${name}${close === undefined ? '' : `; did you mean /${close}?`} Press / to see what there is.`,
    )
  }
  const result = await shell.job(`/${name} ${args}`.trim(), (signal, show) => {
    const agent = shell.agent()
    return agent === undefined ? Promise.resolve(undefined) : agent.runCommand(name, args, { signal, onProgress: show })
  })
  if (result === undefined) return
  switch (result.type) {
    case 'prompt':
      return shell.send(result.prompt)
    case 'text':
      if (result.text !== '') shell.say({ type: 'answer', title: `/${name}`, text: result.text })
      return
    default:
      result satisfies never
  }
}

/** What was asked in earlier sessions of the folder, the oldest first: read in the background. */
export async function earlierPrompts(root: string, current: string | undefined): Promise<readonly string[]> {
  const most = 15
  const largest = 8 << 20
  const all = await listSessions(sessionsFolder(root))
  const files = all
    .filter((summary) => summary.kind === 'session' && summary.file !== current && summary.bytes < largest)
    .slice(0, most)
  const found: string[] = []
  for (const { file } of files.toReversed()) {
    const view = await readSession(file).catch(() => undefined)
    if (view !== undefined) found.push(...promptsOf(view.path(view.leaf('main'))))
  }
  return found
}
