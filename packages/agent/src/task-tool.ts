import type { Tool } from '@reve/harness'
import * as v from 'valibot'
import { builtin } from './tool.ts'

/**
 * A sub-agent for one piece of work: the same model and tools, a conversation of its own, on a lane of its own. Its lane stays
 * in the session; the caller gets its last answer.
 */
export const taskTool: Tool = builtin({
  name: 'task',
  description:
    'Give one piece of work to a sub-agent with the same tools and an empty conversation, and get its last answer. For work whose details you need not see: a search through many files, a change that can be described in full. It sees nothing of this conversation: say all that it needs to know, and what it should report.',
  // What it did may have happened.
  replay: 'never',
  parameters: {
    prompt: {
      type: 'string',
      minLength: 1,
      description:
        'What to do, whole in itself: "Find every caller of openSession below /workspace/src; report path and line."',
    },
  },
  required: ['prompt'],
  schema: v.object({
    prompt: v.pipe(
      v.string(),
      v.check((text) => text.trim() !== '', 'must not be empty'),
    ),
  }),
  run: async ({ prompt }, { subagent, progress }) => {
    progress('a sub-agent works on it')
    const { outcome, reason, text, turns, error } = await subagent(prompt)
    // A completed run with a reason was cut off.
    if (outcome === 'completed' && reason === undefined && text.trim() !== '') return { content: text }
    const why = [reason, error?.message].filter((part) => part !== undefined).join(': ')
    const ended = `The sub-agent ended without a whole report (${outcome}${why === '' ? '' : `, ${why}`}) after ${turns} ${turns === 1 ? 'answer' : 'answers'}. What it did so far has happened.`
    return { content: text.trim() === '' ? ended : `${text}\n\n${ended}`, isError: outcome !== 'completed' }
  },
})
