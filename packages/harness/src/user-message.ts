import type { UserMessage } from '@reve/providers/model'
import * as v from 'valibot'
import { HarnessError } from './errors.ts'
import { asUserMessage } from './hooks.ts'
import { userMessageSchema } from './messages.ts'

/** So that a message, however its characters are escaped, fits into a line of the log. */
const maxMessageChars = 10_000_000

/** What a caller says, checked. Throws HarnessError `invalid_message`. */
export function readUserMessage(message: string | UserMessage): UserMessage {
  const invalid = (problem: string): HarnessError => new HarnessError('invalid_message', problem)
  const read = v.safeParse(userMessageSchema, asUserMessage(message), { abortEarly: true })
  if (!read.success) {
    const issue = read.issues[0]
    throw invalid(`not a user message: ${v.getDotPath(issue) ?? 'message'}: ${issue.message}`)
  }
  const { content } = read.output
  if (!content.some((part) => part.type === 'image' || part.text.trim() !== '')) throw invalid('the message is empty')
  const size = content.reduce((sum, part) => sum + (part.type === 'text' ? part.text : part.data).length, 0)
  if (size > maxMessageChars) {
    throw invalid(`the message has ${size} characters; at most ${maxMessageChars} are taken`)
  }
  return read.output
}
