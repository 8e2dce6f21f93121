import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node'
import {
  type CallToolResult,
  createMcpHandler,
  Server,
  type ServerContext,
  type Tool,
} from '@modelcontextprotocol/server'
import { onTestFinished } from 'vitest'

/** What a server of a test offers; may be changed while it serves. */
export type Offer = {
  tools: readonly unknown[]
  call: (name: string, args: Readonly<Record<string, unknown>>, context: ServerContext) => Promise<CallToolResult>
  instructions?: string
}

export const text = (words: string): CallToolResult => ({ content: [{ type: 'text', text: words }] })

export const tool = (name: string, more: Readonly<Record<string, unknown>> = {}): unknown => ({
  name,
  description: `Does ${name}.`,
  inputSchema: { type: 'object', properties: { word: { type: 'string' } } },
  ...more,
})

const serverOf = (offer: Offer): Server => {
  const server = new Server(
    { name: 'test', version: '1' },
    { capabilities: { tools: { listChanged: true } }, ...(offer.instructions && { instructions: offer.instructions }) },
  )
  server.setRequestHandler('tools/list', () => ({ tools: offer.tools as Tool[] }))
  server.setRequestHandler('tools/call', ({ params }, context) =>
    offer.call(params.name, params.arguments ?? {}, context),
  )
  return server
}

/** Listens on loopback until the test is over. */
export async function listening(listener: RequestListener, port = 0) {
  const requests: IncomingMessage[] = []
  const server = createServer((request, response) => {
    requests.push(request)
    listener(request, response)
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const close = async (): Promise<void> => {
    if (!server.listening) return
    const closed = once(server, 'close')
    server.close()
    server.closeAllConnections()
    await closed
  }
  onTestFinished(close)
  const { port: taken } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${taken}/mcp`, port: taken, requests, close }
}

type Guard = (request: IncomingMessage, response: ServerResponse) => boolean

/** A server without sessions, of both eras; `guard` answers in its place where it says so. */
export async function stateless(offer: Offer, guard: Guard = () => false, port = 0) {
  const handler = createMcpHandler(() => serverOf(offer))
  const serve = toNodeHandler(handler)
  const served = await listening((request, response) => {
    if (!guard(request, response))
      void serve(Object.assign(request, { method: request.method ?? '', url: request.url ?? '' }), response)
  }, port)
  onTestFinished(() => handler.close())
  return { ...served, changed: async () => handler.notify.toolsChanged() }
}

/** A server of the older era, with sessions that it can forget. */
export async function stateful(offer: Offer, guard: Guard = () => false) {
  const sessions = new Map<string, { server: Server; transport: NodeStreamableHTTPServerTransport }>()
  const served = await listening((request, response) => {
    if (guard(request, response)) return
    void answer(request, response)
  })
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const id = String(request.headers['mcp-session-id'] ?? '')
    const known = sessions.get(id)
    if (known !== undefined) return known.transport.handleRequest(request, response)
    if (id !== '') {
      response.writeHead(404, { 'content-type': 'application/json' })
      response.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}')
      return undefined
    }
    const server = serverOf(offer)
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (session) => void sessions.set(session, { server, transport }),
      onsessionclosed: (session) => void sessions.delete(session),
    })
    await server.connect(transport)
    return transport.handleRequest(request, response)
  }
  return {
    ...served,
    sessions: () => sessions.size,
    forget: () => sessions.clear(),
    changed: () => Promise.all([...sessions.values()].map(({ server }) => server.sendToolListChanged())),
  }
}
