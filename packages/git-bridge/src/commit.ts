import type { Oid } from './git-object.ts'
import type { Person } from './person.ts'

/** What a commit says. `seconds`: the author's and the committer's time, since 1970, UTC. */
export type CommitText = {
  readonly tree: Oid
  readonly parent: Oid | undefined
  readonly author: Person
  readonly committer: Person
  readonly seconds: number
  readonly message: string
}

/** The bytes of a commit object. Persons and message are checked. */
export function encodeCommit({ tree, parent, author, committer, seconds, message }: CommitText): Buffer {
  const stamp = ({ name, email }: Person): string => `${name} <${email}> ${seconds} +0000`
  return Buffer.from(
    [
      `tree ${tree}`,
      ...(parent === undefined ? [] : [`parent ${parent}`]),
      `author ${stamp(author)}`,
      `committer ${stamp(committer)}`,
      '',
      message.endsWith('\n') ? message : `${message}\n`,
    ].join('\n'),
  )
}
