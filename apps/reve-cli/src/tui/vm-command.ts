import type { Agent } from '@reve/agent'
import type { ToolBlock } from './block.ts'

/** Of a command's output so much is kept, shown and said to the model: its beginning and its end. */
const keptBytes = 1 << 20
const saidCharacters = 24_000

/** What a `!command` came to: as a block, and as what the model gets to know. */
export type VmCommand = { readonly block: ToolBlock; readonly said: string }

/** Runs a command that a person typed, in the microVM. */
export async function vmCommand(
  agent: Agent,
  command: string,
  signal: AbortSignal,
  show: (text: string) => void,
): Promise<VmCommand> {
  const decoder = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  const pieces: string[] = []
  let kept = 0
  const started = performance.now()
  const result = await agent.vm.exec({
    argv: ['sh', '-lc', command],
    signal,
    maxOutputBytes: 0,
    onOutput: (stream, chunk) => {
      const text = decoder[stream].decode(chunk, { stream: true })
      show(text)
      if (kept < keptBytes) pieces.push(text)
      kept += text.length
    },
  })
  const output = pieces.join('') + (kept > keptBytes ? '\n… more output was not kept' : '')
  const end = result.cancelled ? '(stopped)' : result.exitCode === 0 ? '' : `(exit ${result.exitCode})`
  const text = [output.replace(/\n$/, ''), end].filter((part) => part !== '').join('\n')
  return {
    block: {
      type: 'tool',
      name: '!',
      arguments: { command },
      content: [{ type: 'text', text }],
      state: result.exitCode === 0 ? 'ok' : 'failed',
      ms: performance.now() - started,
    },
    said: `I ran a command in the VM:\n\n$ ${command}\n${shortened(text) || '(no output)'}`,
  }
}

function shortened(text: string): string {
  if (text.length <= saidCharacters) return text
  const half = saidCharacters / 2
  const [head, tail] = [text.slice(0, half), text.slice(-half)]
  return `${head.toWellFormed()}\n… ${text.length - saidCharacters} characters are left out …\n${tail.toWellFormed()}`
}
