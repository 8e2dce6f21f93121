import type { Duplex } from 'node:stream'
import type { GitCredential } from './credentials.ts'

/**
 * The credential helper of a git call, run by git itself through `sh`: it hands git's question to this process over descriptor 3 and
 * gives the answer back. So a credential is in no file, environment or list of arguments, and only whoever holds the descriptor
 * can ask.
 */
export const credentialHelper =
  '!f() { test "$1" = get || exit 0; { cat; echo; } >&3; while IFS= read -r line <&3 && test -n "$line"; do printf "%s\\n" "$line"; done; }; f'

/** A credential that is a name and a password. */
export type Login = Extract<GitCredential, { readonly username: string }>

/** Longest question that is read, in characters. */
const questionLimit = 64 * 1024

/** Answers git's questions on a channel: with the login for its own scheme and host, with nothing for any other. */
export function answerOn(channel: Duplex, login: Login | undefined, onAnswer: () => void): void {
  let asked = ''
  channel.setEncoding('utf8')
  channel.on('data', (text: string) => {
    asked += text
    for (let end = asked.indexOf('\n\n'); end !== -1; end = asked.indexOf('\n\n')) {
      const fits = login !== undefined && isFor(login, asked.slice(0, end))
      asked = asked.slice(end + 2)
      if (fits) onAnswer()
      channel.write(fits ? `username=${login.username}\npassword=${login.password}\n\n` : '\n')
    }
    if (asked.length > questionLimit) channel.destroy()
  })
  // git has ended: nobody waits for an answer any more.
  channel.on('error', () => undefined)
}

/** Whether a question of git's credential protocol is about the login's scheme and host. */
export function isFor(login: Login, question: string): boolean {
  const fields = new Map(
    question.split('\n').map((line) => {
      const at = line.indexOf('=')
      return [line.slice(0, at), line.slice(at + 1)]
    }),
  )
  const address = `${fields.get('protocol') ?? ''}://${fields.get('host') ?? ''}`
  if (!URL.canParse(address)) return false
  const url = new URL(address)
  const user = fields.get('username')
  return (
    url.protocol === `${login.scheme}:` && url.host === login.host && (user === undefined || user === login.username)
  )
}
