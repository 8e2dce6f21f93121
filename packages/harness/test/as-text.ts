/** A field of a line that has to be text, such as an id. */
export function asText(value: unknown): string {
  if (typeof value !== 'string') throw new Error(`not a text: ${JSON.stringify(value)}`)
  return value
}
