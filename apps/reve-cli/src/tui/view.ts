import { cellWidth } from './cells.ts'
import { cleanLine, cleanText } from './clean.ts'
import type { Completion } from './completion.ts'
import { partsText } from './block.ts'
import { layoutEditor } from './editor-layout.ts'
import { clockText, costText, countText } from './figures.ts'
import type { LaneState, LiveCall } from './lane-state.ts'
import { overlayRows } from './overlay-view.ts'
import type { Frame } from './screen.ts'
import { clip, type Line, lineWidth, span, type Span } from './spans.ts'
import { toolSummary } from './tool-summary.ts'
import type { Job, UiState } from './ui-state.ts'

export type Size = { readonly columns: number; readonly rows: number }

/** What is not finished and not part of the state: the open end of the answer, as rows. */
export type LiveText = { readonly tail: readonly Line[] }

const shownCompletions = 8
const shownOutput = 5
const frames = ['◇', '◈', '◆', '◈'] as const

/** The live area: a pure function of what is known, bounded by the terminal's height whatever goes on. */
export function view(state: UiState, live: LiveText, size: Size, now: number): Frame {
  const width = Math.max(1, size.columns)
  const height = Math.max(2, size.rows - 1)
  if (state.overlay !== undefined) return { rows: overlayFrame(state, width, height, now), cursor: undefined }
  const prompt = promptRows(state, width, Math.max(1, Math.floor(height * 0.4)))
  const footer = height >= 6 ? [footerLine(state, width)] : []
  const rule = height >= 5 ? [ruleLine(state, width)] : []
  let room = height - prompt.rows.length - footer.length - rule.length
  const take = (rows: readonly Line[], from: 'start' | 'end'): readonly Line[] => {
    const some = room <= 0 ? [] : from === 'end' ? rows.slice(-room) : rows.slice(0, room)
    room -= some.length
    return some
  }
  // In the order of their worth; they are drawn in the order of the screen.
  const list = take(
    state.completion === undefined
      ? []
      : completionRows(state.completion, width, Math.min(shownCompletions, Math.max(1, room - 2))),
    'start',
  )
  const working = take(workingLines(state, width, now), 'end')
  const waiting = take(queueLines(state, width), 'start')
  const agents = take(agentLines(state, width, now), 'start')
  const calls = take(
    [
      ...state.main.calls.flatMap((call) => callRows(call, width, now)),
      ...state.jobs.flatMap((job) => jobRows(job, width, now)),
    ],
    'end',
  )
  const gap = calls.length + working.length + live.tail.length > 0 && room > 1 ? take([[]], 'start') : []
  const tail = take(live.tail.length > 0 ? live.tail : reasoningRows(state.main, width), 'end')
  const above = [
    ...tail,
    ...(tail.length > 0 && calls.length > 0 ? gap : []),
    ...calls,
    ...agents,
    ...waiting,
    ...(calls.length === 0 || tail.length === 0 ? gap : []),
    ...working,
  ]
  const rows = [...above, ...list, ...rule, ...prompt.rows, ...footer].map((row) => clip(row, width))
  const first = above.length + list.length + rule.length
  return { rows, cursor: { row: first + prompt.cursor.row, column: Math.min(width - 1, prompt.cursor.column) } }
}

function overlayFrame(state: UiState, width: number, height: number, now: number): readonly Line[] {
  const working = workingLines(state, width, now)
  const rows = overlayRows(state, width, height - working.length - 1)
  return [...working, ...rows].slice(-height).map((row) => clip(row, width))
}

function promptRows(
  state: UiState,
  width: number,
  most: number,
): { readonly rows: readonly Line[]; readonly cursor: { readonly row: number; readonly column: number } } {
  const sign = width > 4 ? [span('⟩ ', { role: 'accent', bold: true })] : []
  const indent = lineWidth(sign)
  const { rows, cursor } = layoutEditor(state.editor, width - indent)
  // Of a long prompt, the part with the cursor.
  const from = Math.max(0, Math.min(cursor.row - Math.floor(most / 2), rows.length - most))
  const shown = rows.slice(from, from + most).map(({ line }, index): Line => {
    const mark = index > 0 || from > 0 ? [span(' '.repeat(indent))] : sign
    return [...mark, ...line]
  })
  if (state.editor.text === '' && (state.phase.type !== 'ready' || state.canContinue)) {
    shown[0] = clip([...sign, span(placeholder(state), 'faint')], width)
  }
  return { rows: shown, cursor: { row: cursor.row - from, column: indent + cursor.column } }
}

function placeholder({ phase, canContinue }: UiState): string {
  switch (phase.type) {
    case 'opening':
      return 'opening the session; type already'
    case 'reading':
      return `read only: ${cleanLine(phase.holder, 60)} has this session · /new starts another one`
    case 'refused':
      return 'the agent does not work here: see above'
    case 'ready':
      return canContinue ? 'Enter goes on with what was interrupted' : ''
    default:
      return phase satisfies never
  }
}

function ruleLine(state: UiState, width: number): Line {
  const hint = hintOf(state)
  const text = hint === '' ? '' : ` ${hint} `
  const rest = Math.max(0, Math.min(width, 120) - cellWidth(text) - 2)
  return clip(
    [span('──', 'faint'), span(text, state.quitArmed ? 'alert' : 'faint'), span('─'.repeat(rest), 'faint')],
    width,
  )
}

function hintOf(state: UiState): string {
  if (state.quitArmed) return 'Ctrl-C again leaves'
  if (state.hint !== undefined) return cleanLine(state.hint, 200)
  if (state.completion !== undefined) {
    const count = state.completion.items.length
    const some = count === 1 ? '1 match' : `${count} matches`
    return [`${some} · Tab accepts · ↑↓ choose`, state.completion.note].filter((text) => text !== undefined).join(' · ')
  }
  if (state.main.work === 'run') return 'Enter steers · Alt-Enter follows up · Esc interrupts'
  if (state.main.work !== 'idle' || state.jobs.length > 0) return 'Esc interrupts'
  return state.agents.length > 0 ? '/agents shows what they did' : ''
}

function footerLine({ footer, main }: UiState, width: number): Line {
  const context =
    main.context === undefined || footer.contextWindow === undefined
      ? undefined
      : `${Math.round((main.context / footer.contextWindow) * 100)}% context`
  const parts = [footer.model, footer.thinking, footer.session, context, footer.next]
    .filter((part) => part !== undefined && part !== '')
    .map((part) => cleanLine(part ?? '', 80))
  const left = `  ${parts.join(' · ')}`
  const room = width - cellWidth(left) - 3
  const place = cleanLine(footer.place, 400)
  // Of a place, its end says most.
  const shown = cellWidth(place) <= room ? place : `…${[...place].slice(-Math.max(0, room - 1)).join('')}`
  return clip([span(left, 'faint'), ...(room > 8 ? [span(` · ${shown}`, 'faint')] : [])], width, true)
}

function workingLines(state: UiState, width: number, now: number): readonly Line[] {
  const { main, vm } = state
  const lines: Line[] = []
  const frame = frames[Math.floor(now / 250) % frames.length] ?? '◇'
  if (vm !== undefined) {
    lines.push(
      clip(
        [
          span(`${frame} `, 'accent'),
          span(cleanLine(vm.label, 200), 'dim'),
          span(` (${clockText(now - vm.since)})`, 'faint'),
        ],
        width,
        true,
      ),
    )
  }
  if (main.work !== 'idle') {
    const facts = [
      clockText(now - main.since),
      ...(main.spent.input + main.spent.output > 0
        ? [`↑ ${countText(main.spent.input)} ↓ ${countText(main.spent.output)}`]
        : []),
      ...(main.spent.cost > 0 ? [costText(main.spent.cost)] : []),
      ...(main.aborting ? [] : ['esc to interrupt']),
    ]
    const label = main.aborting ? 'Interrupting…' : labelOf(main, now)
    lines.push(
      clip(
        [span(`${frame} `, 'accent'), span(label, { bold: true }), span(` (${facts.join(' · ')})`, 'faint')],
        width,
        true,
      ),
    )
  }
  return lines
}

function labelOf(main: LaneState, now: number): string {
  if (main.compacting) return 'Compacting'
  if (main.retry !== undefined) {
    const left = Math.max(0, main.retry.until - now)
    return left > 0
      ? `Trying again in ${clockText(left + 999)} (${main.retry.attempt})`
      : `Trying again (${main.retry.attempt})`
  }
  const [call, more] = main.calls
  if (call !== undefined)
    return `Running ${cleanLine(call.name, 40)}${more === undefined ? '' : ` and ${main.calls.length - 1} more`}`
  if (main.work === 'recovery') return 'Recovering'
  return main.arriving === 'reasoning' ? 'Thinking' : main.arriving === 'text' ? 'Writing' : 'Working'
}

function reasoningRows({ reasoning }: LaneState, width: number): readonly Line[] {
  if (reasoning === '') return []
  const lines = cleanText(reasoning)
    .split('\n')
    .filter((line) => line.trim() !== '')
  return lines.slice(-2).map((line) => {
    const room = Math.max(1, width - 2)
    const shown = cellWidth(line) <= room ? line : `…${[...line].slice(-(room - 1)).join('')}`
    return clip([span('  '), span(shown, { role: 'faint', italic: true })], width)
  })
}

function callRows(call: LiveCall, width: number, now: number): readonly Line[] {
  const head: Span[] = [
    span('▸ ', 'accent'),
    span(cleanLine(call.name, 60), { bold: true }),
    span(` ${toolSummary(call.name, call.arguments)}`, 'dim'),
  ]
  const clock = ` ⋯ ${clockText(now - call.since)}`
  return [
    [...clip(head, Math.max(1, width - cellWidth(clock)), true), span(clock, 'faint')],
    ...outputRows(call.output, width),
  ]
}

function jobRows(job: Job, width: number, now: number): readonly Line[] {
  const clock = ` ⋯ ${clockText(now - job.since)} · esc ends it`
  const head = clip(
    [span('! ', 'accent'), span(cleanLine(job.label, 300), { bold: true })],
    Math.max(1, width - cellWidth(clock)),
    true,
  )
  return [[...head, span(clock, 'faint')], ...outputRows(job.output, width)]
}

/** The end of what came so far; the rest is counted. */
function outputRows(output: readonly string[], width: number): readonly Line[] {
  const more = output.length - shownOutput
  return [
    ...(more > 0 ? [[span('  │ ', 'faint'), span(`… ${more} lines before`, 'faint')]] : []),
    ...output
      .slice(-shownOutput)
      .map((line) => clip([span('  │ ', 'faint'), span(cleanLine(line, width), 'dim')], width)),
  ]
}

function agentLines(state: UiState, width: number, now: number): readonly Line[] {
  const open = state.agents.filter(({ done }) => !done)
  return open.slice(0, 4).map(({ state: agent, title }) => {
    const what = agent.work === 'idle' ? 'starting' : labelOf(agent, now).toLowerCase()
    return clip(
      [
        span('  ⤷ ', 'accent'),
        span(cleanLine(title, 60), 'dim'),
        span(` · ${what} · ${clockText(now - agent.since)}`, 'faint'),
      ],
      width,
      true,
    )
  })
}

function queueLines(state: UiState, width: number): readonly Line[] {
  const queued = state.queue.map(({ delivery, message }): readonly [string, string] => [
    delivery === 'steer' ? 'steers' : delivery === 'follow_up' ? 'follows up' : 'goes with the next prompt',
    partsText(message.content),
  ])
  const early = state.early.map((text): readonly [string, string] => ['waits for the session', text])
  const all = [...early, ...queued]
  const shown = all
    .slice(0, 4)
    .map(([how, text]) =>
      clip([span('  ⤷ ', 'faint'), span(cleanLine(text, 300), 'dim'), span(` · ${how}`, 'faint')], width, true),
    )
  const more = all.length > 4 ? [[span(`    and ${all.length - 4} more`, 'faint')]] : []
  const keys =
    queued.length > 0 && shown.length > 0
      ? [[span('    Alt-↑ takes the last one back · /queue lists them', 'faint')]]
      : []
  return [...shown, ...more, ...keys]
}

function completionRows(completion: Completion, width: number, most: number): readonly Line[] {
  const { items, selected } = completion
  const from = Math.max(0, Math.min(selected - Math.floor(most / 2), items.length - most))
  const shown = items.slice(from, from + most)
  const labels = shown.map((item) => cleanLine(item.label ?? item.value, 200))
  const column = Math.min(Math.max(0, ...labels.map(cellWidth)), Math.floor(width * 0.6))
  return shown.map((item, index) => {
    const here = from + index === selected
    const label = clip([span(labels[index] ?? '', here ? { role: 'accent', bold: true } : 'dim')], column, true)
    const space = ' '.repeat(Math.max(1, column - lineWidth(label) + 2))
    return clip(
      [
        span(here ? '  ❯ ' : '    ', 'accent'),
        ...label,
        ...(item.detail === undefined ? [] : [span(space + cleanLine(item.detail, 200), 'faint')]),
      ],
      width,
      true,
    )
  })
}
