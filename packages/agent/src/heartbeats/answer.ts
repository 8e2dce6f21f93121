/** What the model made of a beat. */
export type BeatAnswer =
  /** There is nothing to say. */
  | { readonly type: 'silence' }
  /** For the conversation, when it next goes on. */
  | { readonly type: 'message'; readonly text: string }
  /** For the run that goes on at the moment, if one does. */
  | { readonly type: 'steer'; readonly text: string }
  | { readonly type: 'invalid'; readonly problem: string }

const MOST_CHARACTERS = 20_000
const SHOWN_CHARACTERS = 200

/**
 * Reads the whole answer of a beat: `SILENCE`, `Message: …` or `Steer: …`, with white space around it and nothing else. Any other text
 * is invalid, however near it comes: what is not clearly meant for somebody reaches nobody.
 */
export function parseAnswer(answer: string): BeatAnswer {
  const text = answer.toWellFormed().trim()
  if (text === 'SILENCE') return { type: 'silence' }
  const [, kind, said = ''] = /^(Message|Steer):\s+(\S[\s\S]*)$/.exec(text) ?? []
  if (kind === undefined) return invalid(text === '' ? 'it is empty' : `it begins with ${shown(text)}`)
  if (/^(?:SILENCE$|Message:|Steer:)/m.test(said)) return invalid('it holds more than one answer')
  if (text.length > MOST_CHARACTERS) return invalid(`it has ${text.length} characters, more than ${MOST_CHARACTERS}`)
  return { type: kind === 'Message' ? 'message' : 'steer', text: said }
}

const invalid = (why: string): BeatAnswer => ({
  type: 'invalid',
  problem: `the answer is none of SILENCE, "Message: …" and "Steer: …": ${why}`,
})

function shown(text: string): string {
  const characters = [...text]
  return JSON.stringify(
    characters.slice(0, SHOWN_CHARACTERS).join('') + (characters.length > SHOWN_CHARACTERS ? '…' : ''),
  )
}
