// node main.mts ITEM...: a shopping list in a computer. KC_TOKEN says who asks.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

const url = new URL('http://127.0.0.1:7333/mcp')
const { KC_TOKEN } = process.env
const items = process.argv.slice(2)
if (KC_TOKEN === undefined || items.length === 0) {
  console.error('usage: node main.mts ITEM...   with the token in KC_TOKEN: export KC_TOKEN="$(kc seat create me)"')
  process.exit(2)
}
const client = new Client({ name: 'shopping', version: '1.0.0' })
const headers = { Authorization: `Bearer ${KC_TOKEN}` }
await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }))

/** One call: its text, or an error with the computer's own words. */
async function call(family: string, action: string, args: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const { content, isError } = await client.callTool({ name: family, arguments: { action, ...args } })
  const text = content.map((part) => (part.type === 'text' ? part.text : '')).join('\n')
  if (isError === true) throw new Error(`${family}.${action}: ${text}`)
  return text
}
/** The first tree id of a result. */
const treeOf = (text: string): string => /\b[0-9a-f]{64}\b/.exec(text)?.[0] ?? ''

const refs = await call('ref', 'list')
if (!/^list\b/m.test(refs)) await call('ref', 'create', { name: 'list', tree: treeOf(await call('fs', 'empty')) })
const before = treeOf(await call('ref', 'get', { name: 'list' }))
// A run never changes a tree, it makes another one; the ref moves only if nobody else has moved it meanwhile.
const add = ['sh', '-c', 'printf "%s\\n" "$@" >>list.txt && sort -u -o list.txt list.txt', 'add', ...items]
const after = treeOf(await call('exec', 'run', { tree: before, argv: add }))
if (after !== before) await call('ref', 'move', { name: 'list', expected_tree: before, new_tree: after })
console.log(await call('fs', 'read', { tree: 'list', path: 'list.txt' }))
await client.close()
