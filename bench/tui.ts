import { Markdown, type MarkdownTheme, type Terminal, Text, TuiMainScreen } from '@earendil-works/pi-tui'
import { assistantRows, blockView } from '../apps/reve-cli/src/tui/block-view.ts'
import { Display } from '../apps/reve-cli/src/tui/display.ts'
import { MarkdownStream } from '../apps/reve-cli/src/tui/markdown-stream.ts'
import { createPainter, themes } from '../apps/reve-cli/src/tui/theme.ts'
import type { Comparison } from './measure.ts'

const BLOCKS = 5000
const DELTAS = 20_000
/** So many deltas come between two frames, as from a fast model. */
const A_FRAME = 200
const COLUMNS = 100
const ROWS = 40

const paragraph =
  'A **paragraph** of some words, with `code` in it, that is neither long nor short and wraps once or so.'
const blocks = Array.from({ length: BLOCKS }, (_, at) => `${at}: ${paragraph}`)
/** The answer that streams in: paragraphs, lists and code, a few characters a delta. */
const answer = `${paragraph}\n\n- one\n- two\n\n\`\`\`ts\nconst a = 1 // why\n\`\`\`\n\n`
const deltaOf = (at: number): string => answer.slice((at * 4) % answer.length, ((at * 4) % answer.length) + 4)

/** What a side spent on the frames of a stream that comes after many blocks. */
async function frames(
  show: (text: string) => void,
  stream: (delta: string) => void,
  draw: () => void,
  bytes: () => number,
): Promise<readonly number[]> {
  for (const block of blocks) show(block)
  draw()
  const before = bytes()
  const cpu = process.cpuUsage()
  let count = 0
  for (let at = 0; at < DELTAS; at++) {
    stream(deltaOf(at))
    if (at % A_FRAME !== A_FRAME - 1) continue
    draw()
    count += 1
  }
  const { user, system } = process.cpuUsage(cpu)
  return [(user + system) / 1000 / count, (bytes() - before) / count]
}

async function ours(): Promise<readonly number[]> {
  let written = 0
  const paint = createPainter(themes['dark'] ?? { name: 'none', colours: {} }, 'truecolor', { links: false })
  const markdown = new MarkdownStream()
  const width = COLUMNS - 2
  const display = new Display({
    columns: COLUMNS,
    paint,
    write: (text) => (written += text.length),
    frame: () => ({ rows: [...assistantRows(markdown.tail(width), false).slice(-ROWS), []], cursor: undefined }),
    now: () => 0,
  })
  const draw = (): void => display.draw()
  const result = await frames(
    (text) => {
      display.commitBlock(blockView({ type: 'assistant', text }, COLUMNS))
      draw()
    },
    (delta) => display.commit(assistantRows(markdown.push(delta, width), false)),
    draw,
    () => written,
  )
  display.end()
  return result
}

const plain = (text: string): string => text
const theme: MarkdownTheme = {
  heading: plain,
  link: plain,
  linkUrl: plain,
  code: plain,
  codeBlock: plain,
  codeBlockBorder: plain,
  quote: plain,
  quoteBorder: plain,
  hr: plain,
  listBullet: plain,
  bold: plain,
  italic: plain,
  strikethrough: plain,
  underline: plain,
}

async function theirs(): Promise<readonly number[]> {
  let written = 0
  const nothing = (): void => undefined
  const terminal: Terminal = {
    start: nothing,
    stop: nothing,
    drainInput: async () => undefined,
    write: (data) => (written += data.length),
    columns: COLUMNS,
    rows: ROWS,
    kittyProtocolActive: false,
    moveBy: nothing,
    hideCursor: nothing,
    showCursor: nothing,
    clearLine: nothing,
    clearFromCursor: nothing,
    clearScreen: nothing,
    setTitle: nothing,
    setProgress: nothing,
    setProgramStatus: nothing,
  }
  const tui = new TuiMainScreen(terminal)
  tui.start()
  let text = ''
  let open: Markdown | undefined
  const result = await frames(
    (block) => tui.addChild(new Markdown(block, 1, 0, theme)),
    (delta) => {
      text += delta
      if (open === undefined) {
        open = new Markdown(text, 1, 0, theme)
        tui.addChild(open)
      }
    },
    () => {
      open?.setText(text)
      tui.renderNow()
    },
    () => written,
  )
  tui.addChild(new Text(''))
  tui.stop()
  return result
}

/** What it takes to show an answer that streams in, after a long conversation. */
export const comparisons: readonly Comparison[] = [
  {
    rows: [
      { name: `a frame after ${BLOCKS} blocks, in ${DELTAS} deltas: CPU`, unit: 'ms', goal: 'below 1' },
      { name: 'the same: bytes', unit: 'B' },
    ],
    peer: "pi's TUI",
    ours,
    theirs,
  },
]
