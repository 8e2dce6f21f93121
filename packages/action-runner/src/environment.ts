import type { Slot } from './slot.ts'

/** Where an action's programs are looked for, unless its own environment says otherwise. */
export const defaultPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** The part of an action's environment that is the same in every slot: constants, then what the caller gave. */
export function constantEnvironment(
  path: string,
  user: string,
  caller: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return {
    PATH: path,
    LANG: 'C.UTF-8',
    TZ: 'UTC',
    TERM: 'dumb',
    SHELL: '/bin/sh',
    USER: user,
    LOGNAME: user,
    ...caller,
  }
}

/** The whole closed environment: nothing of the server's own is in it. The caller's values win over the slot's paths too. */
export function slotEnvironment(
  constant: Readonly<Record<string, string>>,
  slot: Slot,
): Readonly<Record<string, string>> {
  return { HOME: slot.home, TMPDIR: slot.tmp, ...constant }
}
