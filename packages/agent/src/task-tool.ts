import type { Tool } from '@reve/harness'

/**
 * A sub-agent for one piece of work: the same model and tools, a conversation of its own, on a lane of its own. Its lane stays
 * in the session; the caller gets its last answer.
 */
export const taskTool: Tool = {
  name: 'task',
  description:
    'Gives one piece of work to a sub-agent with the same tools and an empty conversation, and returns its last answer. For work whose details you need not see: a search through many files, a change that can be described in full. It sees nothing of this conversation: say all that it needs to know, and what it should report.',
  parameters: {
    type: 'object',
    properties: {
      prompt: { type: 'string', description: 'What to do, whole in itself', minLength: 1 },
    },
    required: ['prompt'],
    additionalProperties: false,
  },
  // What it did may have happened.
  replay: 'never',
  run: async ({ prompt }, { subagent, progress }) => {
    progress('a sub-agent works on it')
    const { outcome, reason, text, turns, error } = await subagent(typeof prompt === 'string' ? prompt : '')
    if (outcome === 'completed' && text !== '') return { content: text }
    const why = [reason, error?.message].filter((part) => part !== undefined).join(': ')
    const ended = `The sub-agent ended without a report (${outcome}${why === '' ? '' : `, ${why}`}) after ${turns} ${turns === 1 ? 'answer' : 'answers'}. What it did so far has happened.`
    return { content: text === '' ? ended : `${text}\n\n${ended}`, isError: outcome !== 'completed' }
  },
}
