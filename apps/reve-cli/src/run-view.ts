import { sanitiseLine, sanitiseTerminal } from '@reve/base'
import type { HarnessEvent } from '@reve/harness'
import { paint, type Output } from './output.ts'

/** Lines of a tool's text: its beginning, and its end, where a failure says what it is. */
const headLines = 8
const tailLines = 5
const shownColumns = 200

/**
 * Shows a run's events as lines on standard error. Whatever a model or a tool wrote stays in its own line or indented below
 * its mark, so that it cannot be taken for a line of ours. State: what belongs to the tool call and text in progress.
 */
export function createRunView(output: Output): (event: HarnessEvent) => void {
  let text = ''
  const started = new Set<string>()
  // Results that recovery writes come before any run: what they mean is said as a whole, by whoever recovers.
  let running = false
  const flush = (): void => {
    const said = sanitiseTerminal(text).trim()
    if (said !== '') output.note(paint('bold', '◆ '), said.replaceAll('\n', '\n  '))
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
        output.note(
          paint('blue', '▸ '),
          paint('bold', sanitiseLine(event.toolName, shownColumns)),
          ' ',
          summary(event.arguments),
        )
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
        if (running && event.message.role === 'toolResult' && !started.has(event.message.toolCallId)) {
          output.note(
            paint('blue', '▸ '),
            paint('bold', sanitiseLine(event.message.toolName, shownColumns)),
            paint('dim', ' (not run)'),
          )
          for (const line of shown(event.message.content)) output.note(paint('dim', '  │ '), line)
        }
        return
      case 'run_started':
        running = true
        return
      case 'compaction_started':
        flush()
        output.status('work', 'summarising the conversation')
        return
      case 'compaction_finished':
        output.status('work', undefined)
        output.note(paint('dim', '  ≡ '), compactionText(event))
        return
      case 'hook_failed':
        output.note(paint('red', '  ! '), `a hook failed: ${event.message}`)
        return
      case 'queued':
      case 'usage':
      case 'navigated':
      case 'recovered':
        return
      case 'abort_requested':
        output.note(paint('yellow', '  ! '), 'stopping: the command in the VM is killed, its result is kept')
        return
      case 'run_finished':
        // The text of a run that came to its end is the result, on standard output; that of another is still worth reading.
        if (event.outcome === 'completed') text = ''
        else flush()
        output.clear()
        return
      case 'log_faulted':
        output.note(paint('red', '  ! '), event.message)
        return
      case 'listener_failed':
        output.note(paint('red', '  ! '), event.message)
        return
      default:
        return event satisfies never
    }
  }
}

function compactionText(event: Extract<HarnessEvent, { readonly type: 'compaction_finished' }>): string {
  const { outcome, tokensBefore, tokensAfter, error } = event
  switch (outcome) {
    case 'completed':
      return `the conversation was summarised: about ${tokensBefore} tokens before, ${tokensAfter ?? 0} now`
    case 'failed':
      return `the conversation could not be summarised: ${error?.message ?? 'no reason was given'}`
    case 'declined':
    case 'aborted':
      return `the conversation was not summarised (${outcome})`
    default:
      return outcome satisfies never
  }
}

function summary(args: Readonly<Record<string, unknown>>): string {
  const text = Object.entries(args)
    .map(([key, value]) => (key === 'command' || key === 'path' ? String(value) : `${key}=${JSON.stringify(value)}`))
    .join(' ')
  return sanitiseLine(text.trim().replaceAll(/\r?\n|\r/g, '⏎'), shownColumns)
}

function shown(content: readonly { readonly type: string; readonly text?: string }[]): readonly string[] {
  const lines = content
    .flatMap((part) => (part.text ?? `(${part.type})`).split(/\r?\n/))
    .map((line) => sanitiseLine(line, shownColumns))
  if (lines.length <= headLines + tailLines + 1) return lines
  return [
    ...lines.slice(0, headLines),
    `… ${lines.length - headLines - tailLines} more lines`,
    ...lines.slice(-tailLines),
  ]
}
