import type { SandboxConfig } from './sandbox-config.ts'

/** What a secret is now: where the driver keeps it, and its value, which is never written anywhere. */
export type SecretValue = { readonly variable: string; readonly source: string; readonly value: string }

/** What the owner asks of a driver; it answers each. */
export type DriverRequest =
  /** Boots, and starts `command` in the guest, which has to go on running. */
  | {
      readonly type: 'start'
      readonly config: SandboxConfig
      readonly command: { readonly path: string; readonly args: readonly string[] }
    }
  /** Boots, and that is all. `root` is a folder that becomes the guest's root file system. */
  | { readonly type: 'try'; readonly name: string; readonly root: string }
  /** New values, and the variables of secrets that are no more. */
  | {
      readonly type: 'secrets'
      readonly name: string
      readonly values: readonly SecretValue[]
      readonly removed: readonly string[]
    }
  /** Powers off and forgets the VM. */
  | { readonly type: 'stop'; readonly name: string; readonly ms: number }

export type DriverMessage =
  | { readonly type: 'done'; readonly id: number }
  | { readonly type: 'failed'; readonly id: number; readonly code: string; readonly text: string }
  /** What was started in the guest is over. */
  | { readonly type: 'ended'; readonly text: string }
