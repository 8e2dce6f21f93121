import { GitError } from './errors.ts'

/** Who wrote or committed. */
export type Person = { readonly name: string; readonly email: string }

/**
 * Reads `Name <email>`.
 *
 * @throws GitError `bad_argument`.
 */
export function parsePerson(text: string): Person {
  const match = /^\s*([^<>]*?)\s*<\s*([^<>\s]*)\s*>\s*$/.exec(text)
  return checkPerson({ name: match?.[1] ?? '', email: match?.[2] ?? '' })
}

/**
 * Checks that a person can stand in a commit.
 *
 * @throws GitError `bad_argument`.
 */
export function checkPerson(person: Person): Person {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  const clean = (value: string): boolean =>
    value.trim() !== '' && value.isWellFormed() && !/[<>\u0000-\u001f\u007f]/.test(value)
  if (!clean(person.name) || !clean(person.email)) {
    throw new GitError(
      'bad_argument',
      'an author needs a name and an address, such as "Ada Lovelace <ada@example.com>"',
    )
  }
  return { name: person.name.trim(), email: person.email.trim() }
}
