import { parseYaml } from '@reve/base/yaml'
import * as v from 'valibot'
import { type Line, type Role, roles, type Style } from './spans.ts'

/** `#rrggbb` for each role that differs from the terminal's own text. */
export type Theme = { readonly name: string; readonly colours: Readonly<Partial<Record<Role, string>>> }

const dark: Theme = {
  name: 'dark',
  colours: {
    dim: '#8a9098',
    faint: '#676c74',
    accent: '#5aa0ff',
    danger: '#f38ba8',
    good: '#a6e3a1',
    alert: '#dbbc7f',
    code: '#8abeb7',
    added: '#a6e3a1',
    removed: '#f38ba8',
    keyword: '#b294e0',
    string: '#a6c98f',
    number: '#dba37f',
    comment: '#737a83',
  },
}

const light: Theme = {
  name: 'light',
  colours: {
    dim: '#5d636c',
    faint: '#858b94',
    accent: '#1a5fc4',
    danger: '#b3263f',
    good: '#256b35',
    alert: '#7a5600',
    code: '#156b64',
    added: '#256b35',
    removed: '#b3263f',
    keyword: '#6f3fb0',
    string: '#3f6b1f',
    number: '#8f4a14',
    comment: '#767c85',
  },
}

/** Themes that are always there. `none`: no colours, bold and the like stay. */
export const themes: Readonly<Record<string, Theme>> = { dark, light, none: { name: 'none', colours: {} } }

const colour = v.pipe(v.string('must be "#rrggbb"'), v.regex(/^#[0-9a-fA-F]{6}$/, 'must be "#rrggbb"'))
const schema = v.strictObject(
  {
    base: v.exactOptional(v.picklist(['dark', 'light', 'none'], 'must be dark, light or none'), 'dark'),
    colors: v.exactOptional(
      v.strictObject(Object.fromEntries(roles.map((role) => [role, v.exactOptional(colour)])), (issue) =>
        issue.expected === 'never' ? `is no role: there are ${roles.join(', ')}` : 'must be a mapping of role to color',
      ),
      {},
    ),
  },
  'a theme has base and colors',
)

/**
 * Reads a `theme.yml`: `base` (dark, light, none) and `colors` by role.
 *
 * @throws YamlError with file:line:column.
 */
export function parseTheme(source: string, file: string): Theme {
  const { base, colors } = parseYaml(source, file, schema)
  return { name: file, colours: { ...themes[base]?.colours, ...colors } }
}

/** How many colours a terminal shows. `bare`: no styles at all. */
export type Depth = 'truecolor' | '256' | '16' | 'none' | 'bare'

/** What a terminal can, by the environment. Sources: no-color.org, the values that terminals set. */
export function colourDepth(env: (name: string) => string | undefined): Depth {
  const term = env('TERM') ?? ''
  if (term === 'dumb') return 'bare'
  if ((env('NO_COLOR') ?? '') !== '') return 'none'
  if (/truecolor|24bit/.test(env('COLORTERM') ?? '') || /direct/.test(term)) return 'truecolor'
  return /256/.test(term) ? '256' : '16'
}

/** Whether links (OSC 8) are known to work: elsewhere some terminals show the bytes. */
export function linksWork(env: (name: string) => string | undefined): boolean {
  const program = env('TERM_PROGRAM') ?? ''
  if (env('TERM') === 'dumb' || (env('TERM') ?? '').startsWith('screen')) return false
  return (
    /^(?:iTerm\.app|WezTerm|vscode|ghostty|Hyper|rio|Tabby)$/i.test(program) ||
    /kitty|ghostty|alacritty|foot|wezterm|contour/.test(env('TERM') ?? '') ||
    (env('KITTY_WINDOW_ID') ?? '') !== '' ||
    (env('WT_SESSION') ?? '') !== '' ||
    (env('DOMTERM') ?? '') !== '' ||
    Number(env('VTE_VERSION') ?? 0) >= 5000
  )
}

/** Turns rows into bytes for a terminal. */
export type Painter = (line: Line) => string

/** @param options.links whether links are written as OSC 8. */
export function createPainter(theme: Theme, depth: Depth, options: { readonly links: boolean }): Painter {
  const known = new Map<Style, string>()
  const sgr = (style: Style): string => {
    const found = known.get(style)
    if (found !== undefined) return found
    const code = depth === 'bare' ? '' : codesOf(style, theme, depth).join(';')
    known.set(style, code)
    // Styles are few objects; those that are made anew for each span must not gather.
    if (known.size > 2000) known.clear()
    return code
  }
  return (line) =>
    line
      .map(({ text, style }) => {
        // Nothing should be left by now; if anything is, it is not for the terminal.
        const safe = text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, '\ufffd')
        const code = sgr(style)
        const painted = code === '' ? safe : `\u001b[${code}m${safe}\u001b[0m`
        if (style.link === undefined || !options.links || depth === 'bare') return painted
        return `\u001b]8;;${linkTarget(style.link)}\u001b\\${painted}\u001b]8;;\u001b\\`
      })
      .join('')
}

const linkTarget = (url: string): string =>
  url.replaceAll(/[^\u0021-\u007e]/gu, (other) => encodeURIComponent(other.toWellFormed()))

function codesOf(style: Style, theme: Theme, depth: Depth): readonly string[] {
  const codes: string[] = []
  if (style.bold) codes.push('1')
  if (style.italic) codes.push('3')
  if (style.underline) codes.push('4')
  if (style.inverse) codes.push('7')
  if (style.strike) codes.push('9')
  const hex = style.role === undefined ? undefined : theme.colours[style.role]
  if (hex === undefined) {
    // Without colours, what is less important is still set apart.
    if (depth === 'none' && (style.role === 'dim' || style.role === 'faint')) codes.push('2')
    return codes
  }
  if (depth === 'truecolor') codes.push(`38;2;${rgb(hex).join(';')}`)
  else if (depth === '256') codes.push(`38;5;${nearest256(rgb(hex))}`)
  else if (depth === '16') codes.push(String(nearest16(style.role)))
  else if (style.role === 'dim' || style.role === 'faint') codes.push('2')
  return codes
}

type Rgb = readonly [number, number, number]

const rgb = (hex: string): Rgb => [
  Number.parseInt(hex.slice(1, 3), 16),
  Number.parseInt(hex.slice(3, 5), 16),
  Number.parseInt(hex.slice(5, 7), 16),
]

const steps: readonly number[] = [0, 95, 135, 175, 215, 255]

/** The nearest of the 216 cube colours and 24 greys of the 256-colour palette. */
function nearest256(wanted: Rgb): number {
  const nearestStep = (value: number): number =>
    steps.reduce(
      (best, step, index) => (Math.abs(step - value) < Math.abs((steps[best] ?? 0) - value) ? index : best),
      0,
    )
  const [r, g, b] = [nearestStep(wanted[0]), nearestStep(wanted[1]), nearestStep(wanted[2])] as const
  const cube: Rgb = [steps[r] ?? 0, steps[g] ?? 0, steps[b] ?? 0]
  const grey = Math.max(0, Math.min(23, Math.round(((wanted[0] + wanted[1] + wanted[2]) / 3 - 8) / 10)))
  const level = 8 + grey * 10
  return distance(wanted, cube) <= distance(wanted, [level, level, level]) ? 16 + 36 * r + 6 * g + b : 232 + grey
}

const distance = (a: Rgb, b: Rgb): number => (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2

/** With the terminal's own sixteen, the role says more than the exact shade. */
function nearest16(role: Role | undefined): number {
  switch (role) {
    case 'danger':
    case 'removed':
      return 31
    case 'good':
    case 'added':
    case 'string':
      return 32
    case 'alert':
    case 'number':
      return 33
    case 'accent':
      return 34
    case 'keyword':
      return 35
    case 'code':
      return 36
    case 'dim':
    case 'faint':
    case 'comment':
      return 90
    case 'text':
    case undefined:
      return 39
    default:
      return role satisfies never
  }
}
