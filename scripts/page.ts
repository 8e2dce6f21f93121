import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** One thing that a page has its reader do, in the page's order. `line` is that of the block's first line, from 1. */
export type Step = {
  readonly line: number
  readonly text: string
} & (
  | {
      readonly type: 'commands'
      /** They end with a failure, which the page shows. */
      readonly fails: boolean
      /** They run until they are stopped, beside everything that follows. */
      readonly elsewhere: boolean
      /** What they print, where the page says so: `…` stands for any text. */
      readonly prints: string | undefined
    }
  | { readonly type: 'file'; readonly path: string }
  /** What runs elsewhere is stopped. */
  | { readonly type: 'stop' }
)

/**
 * The steps of a page in Markdown, by its fenced blocks:
 * - `sh`: commands, typed one after the other in one shell. `sh fails`: they end with a failure. `sh elsewhere`: in another terminal;
 *   they are stopped where the text goes on to say `Ctrl-C`, or with the page.
 * - `text`: what the commands before it print.
 * - any other language: a file, whose name the text before it ends with, as `name`: with a colon.
 *
 * @throws Error with file and line for a block that is none of these: nothing of a page is left out silently.
 */
export function stepsOf(source: string, name: string): readonly Step[] {
  const steps: Step[] = []
  let before = ''
  const pieces = source.matchAll(/^```(.*)\n([^]*?)^```$|^(?!```).*$/gm)
  for (const { 0: whole, 1: info, 2: text = '', index } of pieces) {
    if (info === undefined) {
      if (/\bCtrl-C\b/.test(whole) && steps.some((step) => step.type === 'commands' && step.elsewhere))
        steps.push({ type: 'stop', line: lineAt(source, index), text: whole })
      if (whole.trim() !== '') before = whole
      continue
    }
    const line = lineAt(source, index) + 1
    const where = `${name}:${line}`
    const [language = '', ...words] = info.trim().split(/\s+/)
    if (language === 'sh') {
      const strange = words.find((word) => word !== 'fails' && word !== 'elsewhere')
      if (strange !== undefined)
        throw new Error(`${where}: sh ${strange}: there are "sh", "sh fails" and "sh elsewhere"`)
      const [fails, elsewhere] = [words.includes('fails'), words.includes('elsewhere')]
      steps.push({ type: 'commands', line, text, fails, elsewhere, prints: undefined })
    } else if (language === 'text') {
      const last = steps.pop()
      if (last?.type !== 'commands' || last.prints !== undefined)
        throw new Error(`${where}: there are no commands before this that could print it`)
      steps.push({ ...last, prints: text })
    } else {
      const path = /`([^`\s]+)`:$/.exec(before.trim())?.[1]
      if (path === undefined)
        throw new Error(`${where}: the text before this block does not end with its file's name, as \`name\`:`)
      steps.push({ type: 'file', line, text, path })
    }
  }
  return steps
}

/** The steps of a page of this repository. */
export const stepsOfPage = (page: URL): readonly Step[] => stepsOf(readFileSync(page, 'utf8'), fileURLToPath(page))

const lineAt = (source: string, index: number): number => source.slice(0, index).split('\n').length

/**
 * Whether a program printed what a page says. `…` is any text of a line, and on a line of its own any number of lines; white space at
 * the ends of lines, and empty lines at both ends, do not count.
 */
export function printed(output: string, prints: string): boolean {
  const lines = (text: string): readonly string[] =>
    text
      .replaceAll(/[ \t\r]+$/gm, '')
      .replace(/^\n+/, '')
      .trimEnd()
      .split('\n')
  const pattern = lines(prints)
    .map((line) => (line === '…' ? '(?:.*\\n)*' : `${line.split('…').map(escape).join('.*')}\\n`))
    .join('')
  return new RegExp(`^${pattern}$`).test(`${lines(output).join('\n')}\n`)
}

const escape = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)
