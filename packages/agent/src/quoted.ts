/**
 * Text of somebody outside as an element: a model sees where it begins, where it ends and whose it is, and nothing in it can end it, or
 * pass for a command.
 */
export function quoted(name: string, attributes: Readonly<Record<string, string>>, text: string): string {
  const given = Object.entries(attributes).map(([key, value]) => ` ${key}="${attribute(value)}"`)
  return `<${name}${given.join('')}>\n${escaped(text)}\n</${name}>`
}

/** Whether `text` is an element that {@link quoted} made, with that attribute. */
export function hasAttribute(text: string, name: string, key: string, value: string): boolean {
  const [first = ''] = text.split('\n', 1)
  return first.startsWith(`<${name} `) && first.includes(` ${key}="${attribute(value)}"`)
}

const escaped = (text: string): string =>
  text
    .toWellFormed()
    .replaceAll(controls, '\uFFFD')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')

const attribute = (text: string): string =>
  escaped(text)
    .replaceAll(/[\n\t]/g, ' ')
    .replaceAll('"', '&quot;')

const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g
