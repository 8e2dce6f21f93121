import { type EgressEvent, egressText, type MicroVmEvent } from '@reve/sandbox-microvm'
import { paint, type Output } from './output.ts'

const seconds = (ms: number): string => (ms < 10_000 ? `${(ms / 1000).toFixed(1)}s` : `${Math.round(ms / 1000)}s`)

/** Shows what the microVM is doing: a moving line on a terminal, one line for each finished stage that took a while. */
export function vmProgress(output: Output): (event: MicroVmEvent) => void {
  return (event) => {
    switch (event.type) {
      case 'notice':
        output.note(paint('yellow', '  ! '), event.text)
        return
      case 'stage':
        switch (event.state) {
          case 'start':
          case 'progress':
            output.status('stage', event.label)
            return
          case 'done':
            output.status('stage', undefined)
            if ((event.ms ?? 0) >= 1000)
              output.note(paint('green', '  ✓ '), event.label, paint('dim', ` (${seconds(event.ms ?? 0)})`))
            return
          case 'failed':
            output.status('stage', undefined)
            output.note(paint('red', '  ✗ '), event.label)
            return
          default:
            return event.state satisfies never
        }
      default:
        return event satisfies never
    }
  }
}

/** Says what the edge of the VM's network refused, or could not do; what went through is nobody's news. */
export function networkNotes(output: Output): (event: EgressEvent) => void {
  return (event) => {
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
        output.note(paint('yellow', '  ! '), egressText(event))
        return
      default:
        event satisfies never
    }
  }
}
