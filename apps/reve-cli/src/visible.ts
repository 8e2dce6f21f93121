/**
 * Text of anybody's, made fit for a page: line ends are line feeds, and what would not be seen (control characters, what turns the
 * order of text around, characters that only programs read) is shown instead of working.
 */
export function visible(text: string): string {
  return text
    .toWellFormed()
    .replaceAll(/\r\n?|[\u2028\u2029]/g, '\n')
    .replaceAll(/[\u0000-\u0008\u000b-\u001f]/g, (control) => String.fromCharCode(0x24_00 + control.charCodeAt(0)))
    .replaceAll('\u007f', '\u2421')
    .replaceAll(/[\u0080-\u009f\ufffe\uffff]/g, '\ufffd')
    .replaceAll(
      /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu,
      (mark) => `⟨U+${(mark.codePointAt(0) ?? 0).toString(16).toUpperCase()}⟩`,
    )
}
