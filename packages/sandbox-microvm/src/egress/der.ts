/** What X.509 needs of DER (ITU-T X.690), writing only. Every function returns one whole element. */

function element(tag: number, content: Buffer): Buffer {
  const length = content.length
  const header =
    length < 0x80
      ? [tag, length]
      : length < 0x1_00
        ? [tag, 0x81, length]
        : length < 0x1_00_00
          ? [tag, 0x82, length >> 8, length & 255]
          : undefined
  if (header === undefined) throw new RangeError(`no certificate has an element of ${length} bytes`)
  return Buffer.concat([Buffer.from(header), content])
}

export const sequence = (...parts: readonly Buffer[]): Buffer => element(0x30, Buffer.concat(parts))
export const set = (...parts: readonly Buffer[]): Buffer => element(0x31, Buffer.concat(parts))
export const bool = (value: boolean): Buffer => element(0x01, Buffer.from([value ? 0xff : 0]))
export const bytes = (content: Buffer): Buffer => element(0x04, content)
export const text = (content: string): Buffer => element(0x0c, Buffer.from(content, 'utf8'))

/** A whole number that is not negative, big end first; the first byte must be below 0x80. */
export const integer = (content: Buffer): Buffer => element(0x02, content)

/** A string of bits, of which the last `unused` are none. */
export const bits = (content: Buffer, unused = 0): Buffer =>
  element(0x03, Buffer.concat([Buffer.from([unused]), content]))

/** An element under a number of its place's own: around another one, or instead of its tag. */
export const context = (number: number, content: Buffer, form: 'around' | 'primitive' = 'around'): Buffer =>
  element((form === 'around' ? 0xa0 : 0x80) | number, content)

/** An object identifier, written with dots. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return element(
    0x06,
    Buffer.from(
      [first * 40 + second, ...rest].flatMap((arc) => {
        const groups = [arc & 0x7f]
        for (let left = arc >>> 7; left > 0; left >>>= 7) groups.unshift(0x80 | (left & 0x7f))
        return groups
      }),
    ),
  )
}

/** A time in milliseconds, to the second: two digits of the year up to 2049, four after that. */
export function time(ms: number): Buffer {
  const digits = `${new Date(ms).toISOString().slice(0, 19).replaceAll(/[-:T]/g, '')}Z`
  return Number(digits.slice(0, 4)) < 2050
    ? element(0x17, Buffer.from(digits.slice(2), 'latin1'))
    : element(0x18, Buffer.from(digits, 'latin1'))
}

/** The armour of RFC 7468. */
export const pem = (label: string, content: Buffer): string =>
  `-----BEGIN ${label}-----\n${content.toString('base64').replaceAll(/.{64}(?=.)/g, '$&\n')}\n-----END ${label}-----\n`
