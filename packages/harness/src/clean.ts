import type {
  AnswerTextPart,
  AssistantMessage,
  ImagePart,
  Json,
  JsonObject,
  Message,
  ReasoningPart,
  TextPart,
  ToolCallPart,
  UserMessage,
} from '@reve/providers/model'

/** Replaces known secret values in a text. */
export type Redact = {
  (text: string): string
  /**
   * How many characters at the end of `text` may be the beginning of a secret: the longest end of it that a secret begins
   * with, 0 when there is none. A stream holds back these and no more. Without it a stream holds back its last word and
   * what stands between `-----BEGIN` and `-----END` lines; other secrets with white space in them would show in part.
   */
  readonly unfinished?: (text: string) => number
}

/** A copy of `value` with every string in it, keys too, given through `change`. */
function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value)
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), mapStrings(item, change)]))
}

/** A copy without lone surrogates: one of them makes every later request invalid. */
export function wellFormed<T>(value: T): T {
  // Strings go in, strings come out: the shape stays.
  return mapStrings(value, (text) => text.toWellFormed()) as T
}

/** What every text passes before it is appended or emitted: well-formed, and without the secrets that are known. */
export type Cleaner = {
  text(text: string): string
  /** See {@link Redact}; undefined when the redaction does not tell. */
  unfinished(text: string): number | undefined
  json<T extends Json>(value: T): T
  user(message: UserMessage): UserMessage
  assistant(message: AssistantMessage): AssistantMessage
  /** A secret that is split over adjacent text parts is found too: these become one. */
  content(content: readonly (TextPart | ImagePart)[]): readonly (TextPart | ImagePart)[]
  message(message: Message): Message
}

/** Makes a cleaner of a redaction; without one it only repairs text. */
export function createCleaner(redact: Redact = (text) => text): Cleaner {
  // A redaction cuts text: repair after it as well as before.
  const text = (raw: string): string => redact(raw.toWellFormed()).toWellFormed()
  const json = <T extends Json>(value: T): T => mapStrings(value, text) as T
  const unfinished = (raw: string): number | undefined => redact.unfinished?.(raw)

  const content = (parts: readonly (TextPart | ImagePart)[]): readonly (TextPart | ImagePart)[] =>
    textRuns(parts).flatMap((run): readonly (TextPart | ImagePart)[] => {
      if (run.type === 'image') return [run.part]
      const apart = run.texts.map((one) => text(one))
      const joined = text(run.texts.join(''))
      // Parts stay what they are, unless only their joint shows what has to go.
      return (joined === apart.join('') ? apart : [joined]).map((one) => ({ type: 'text', text: one }))
    })

  function part(part: AnswerTextPart | ReasoningPart | ToolCallPart): AnswerTextPart | ReasoningPart | ToolCallPart {
    switch (part.type) {
      case 'text':
        return { ...part, text: text(part.text), ...(part.opaque !== undefined && { opaque: json(part.opaque) }) }
      case 'reasoning':
        return reasoning(part)
      case 'toolCall': {
        const head = { type: part.type, id: text(part.id), name: text(part.name) } as const
        return 'malformed' in part
          ? { ...head, malformed: text(part.malformed) }
          : { ...head, arguments: json(part.arguments) }
      }
      default:
        return part satisfies never
    }
  }

  /** The model checks its own item byte for byte: one that held a secret cannot go back at all, it stays for display. */
  function reasoning(part: ReasoningPart): ReasoningPart {
    const shown = { type: part.type, text: text(part.text) } as const
    if (part.opaque === undefined) return shown
    const opaque: JsonObject = json(part.opaque)
    return JSON.stringify(opaque) === JSON.stringify(part.opaque) ? { ...shown, opaque } : shown
  }

  const user = (message: UserMessage): UserMessage => ({ role: 'user', content: content(message.content) })
  const assistant = (message: AssistantMessage): AssistantMessage => ({
    ...message,
    content: message.content.map(part),
  })

  function message(whole: Message): Message {
    switch (whole.role) {
      case 'user':
        return user(whole)
      case 'assistant':
        return assistant(whole)
      case 'toolResult':
        return { ...whole, content: content(whole.content) }
      default:
        return whole satisfies never
    }
  }

  return { text, unfinished, json, user, assistant, content, message }
}

type TextRun =
  | { readonly type: 'text'; readonly texts: string[] }
  | { readonly type: 'image'; readonly part: ImagePart }

/** Texts that stand next to each other, together. */
function textRuns(parts: readonly (TextPart | ImagePart)[]): readonly TextRun[] {
  const runs: TextRun[] = []
  for (const part of parts) {
    const last = runs.at(-1)
    if (part.type === 'image') runs.push({ type: 'image', part })
    else if (last?.type === 'text') last.texts.push(part.text)
    else runs.push({ type: 'text', texts: [part.text] })
  }
  return runs
}
