import type { ImagePart, JsonObject, TextPart } from '@reve/providers/model'

/** A finished piece of what a person sees: written to the scrollback once. Texts are as they came; whoever draws them cleans them. */
export type UiBlock =
  /** What a person said. `as`: how it was delivered, when it was not the prompt of a run. */
  | { readonly type: 'user'; readonly text: string; readonly as?: 'steer' | 'follow_up' | 'next_run' }
  | { readonly type: 'assistant'; readonly text: string }
  | ToolBlock
  | { readonly type: 'notice'; readonly text: string; readonly level: NoticeLevel }
  | { readonly type: 'inbox'; readonly from: string; readonly text: string }
  /** What a command of the terminal shows. Markdown. */
  | { readonly type: 'answer'; readonly title: string; readonly text: string }

export type NoticeLevel = 'info' | 'good' | 'warning' | 'error'

export type ToolBlock = {
  readonly type: 'tool'
  readonly name: string
  readonly arguments: JsonObject
  readonly content: readonly (TextPart | ImagePart)[]
  readonly state: 'ok' | 'failed' | 'unknown' | 'not_run'
  readonly ms?: number
}

/** Text of a message's parts; images as their kind. */
export const partsText = (parts: readonly (TextPart | ImagePart)[]): string =>
  parts.map((part) => (part.type === 'text' ? part.text : `[image, ${part.mimeType}]`)).join('\n')
