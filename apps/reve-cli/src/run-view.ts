import type { HarnessEvent } from '@reve/harness'
import { paint, type Output } from './output.ts'

/** Lines of a tool's text: its beginning, and its end, where a failure says what it is. */
const headLines = 8
const tailLines = 5
const shownColumns = 200

/** Shows a run's events as lines on standard error. State: what belongs to the tool call and text in progress. */
export function createRunView(output: Output): (event: HarnessEvent) => void {
  let text = ''
  const started = new Set<string>()
  const flush = (): void => {
    if (text.trim() !== '') output.note(paint('bold', '◆ '), text.trim())
    text = ''
  }
  return (event) => {
    switch (event.type) {
      case 'text':
        text += event.delta
        return
      case 'reasoning':
      case 'turn_started':
        output.status('work', 'thinking')
        return
      case 'tool_started':
        started.add(event.toolCallId)
        flush()
        output.note(paint('blue', '▸ '), paint('bold', event.toolName), ' ', summary(event.arguments))
        output.status('work', `${event.toolName} is running`)
        return
      case 'tool_progress':
        output.status('work', event.text)
        return
      case 'tool_finished':
        output.status('work', undefined)
        for (const line of shown(event.result.content)) output.note(paint('dim', '  │ '), line)
        if (event.result.isError) output.note(paint('dim', '  └ '), paint('red', 'not ok'))
        return
      case 'retry':
        if (event.discard) text = ''
        output.note(
          paint('yellow', '  ! '),
          `${event.error.message}; trying again in ${(event.delayMs / 1000).toFixed(1)} s`,
        )
        return
      case 'message':
        if (event.message.role === 'assistant' && event.message.stopReason === 'toolUse') flush()
        if (event.message.role === 'toolResult' && !started.has(event.message.toolCallId)) {
          output.note(paint('blue', '▸ '), paint('bold', event.message.toolName), paint('dim', ' (not run)'))
          for (const line of shown(event.message.content)) output.note(paint('dim', '  │ '), line)
        }
        return
      case 'queued':
      case 'usage':
      case 'run_started':
      case 'recovered':
        return
      case 'abort_requested':
        output.note(paint('yellow', '  ! '), 'stopping: the command in the VM is killed, its result is kept')
        return
      case 'run_finished':
        // The final text is the result, on standard output.
        text = ''
        output.clear()
        return
      case 'listener_failed':
        output.note(paint('red', '  ! '), event.message)
        return
      default:
        return event satisfies never
    }
  }
}

function summary(args: Readonly<Record<string, unknown>>): string {
  const text = Object.entries(args)
    .map(([key, value]) => (key === 'command' || key === 'path' ? String(value) : `${key}=${JSON.stringify(value)}`))
    .join(' ')
    .replaceAll('\n', '⏎')
  return text.length > shownColumns ? `${[...text].slice(0, shownColumns).join('')}…` : text
}

function shown(content: readonly { readonly type: string; readonly text?: string }[]): readonly string[] {
  const lines = content.flatMap((part) => (part.text ?? `(${part.type})`).split('\n'))
  if (lines.length <= headLines + tailLines + 1) return lines
  return [
    ...lines.slice(0, headLines),
    `… ${lines.length - headLines - tailLines} more lines`,
    ...lines.slice(-tailLines),
  ]
}
