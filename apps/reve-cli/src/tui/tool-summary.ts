import type { JsonObject } from '@reve/providers/model'
import { cleanLine } from './clean.ts'

/** Arguments that say most about a call, in this order. */
const telling = ['command', 'path', 'file', 'pattern', 'query', 'url', 'prompt', 'name'] as const

/** One line about a call: its telling argument, else all of them as JSON. */
export function toolSummary(name: string, args: JsonObject): string {
  const key = telling.find((word) => typeof args[word] === 'string')
  const main = key === undefined ? undefined : args[key]
  if (typeof main !== 'string') {
    const text = JSON.stringify(args)
    return text === '{}' ? '' : cleanLine(text)
  }
  if (name === 'grep' && typeof args['path'] === 'string') return cleanLine(`${main} in ${args['path']}`)
  if (name === 'read' && typeof args['offset'] === 'number') return cleanLine(`${main} from line ${args['offset']}`)
  return cleanLine(main)
}
