/** A value that a channel keeps. */
export type StateValue =
  | null
  | boolean
  | number
  | string
  | readonly StateValue[]
  | { readonly [key: string]: StateValue }

/** A channel's own values by key, durable and apart from those of any other channel. */
export type ChannelState = {
  readonly get: (key: string) => StateValue | undefined
  /** Undefined takes the key out. Throws ChannelError `invalid_value`, `too_large`. */
  readonly set: (key: string, value: StateValue | undefined) => void
  /** Reads, changes and writes in one transaction, also against other processes; gives what `change` gave. */
  readonly update: (
    key: string,
    change: (value: StateValue | undefined) => StateValue | undefined,
  ) => StateValue | undefined
  readonly keys: () => readonly string[]
}
