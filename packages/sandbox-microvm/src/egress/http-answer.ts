import type { ClientRequest, IncomingMessage, OutgoingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { codeOf } from '@reve/base'
import { endToEnd, fieldOf, type Field, fieldsOf } from './http-head.ts'
import { type HttpSide, type Line, MOST_HELD_BYTES, UpstreamFailure } from './http-line.ts'
import { relay } from './relay.ts'
import type { Replacer } from './replace.ts'
import type { Findings } from './secrets.ts'

/** Takes the answer, or its absence, to the guest. */
export function passAnswer(
  line: Line,
  request: IncomingMessage,
  response: ServerResponse,
  upstream: ClientRequest,
  findings: Findings,
  upgrading: Duplex | undefined,
): void {
  const { side, stream } = line
  let answered = false
  response.once('close', () => {
    if (!response.writableFinished) upstream.destroy()
  })
  request.once('close', () => {
    if (!request.complete) upstream.destroy()
  })
  upstream.on('continue', () => response.writeContinue())
  upstream.on('response', (incoming) => {
    answered = true
    try {
      passResponse(request, response, incoming, side, findings)
    } catch (error) {
      incoming.destroy()
      refuse(response, stream, 502, `the answer cannot be passed on (${codeOf(error) ?? 'malformed'})`)
    }
  })
  upstream.on('upgrade', (incoming, socket, head) => {
    answered = true
    if (upgrading === undefined) {
      socket.destroy()
      refuse(response, stream, 502, 'the host changed the protocol without being asked')
      return
    }
    const fields = redactFields(fieldsOf(incoming.rawHeaders), side.secrets.redactor(findings))
    response.detachSocket(request.socket)
    if (head.length > 0) socket.unshift(head)
    upgrading.write(
      Buffer.from(
        `HTTP/1.1 101 Switching Protocols\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
        'latin1',
      ),
    )
    relay(upgrading, socket)
  })
  upstream.on('error', (error) => {
    // The host may answer before the whole body came, and close: what it said is passed on, the rest is dropped.
    if (answered) {
      request.unpipe()
      request.resume()
      return
    }
    if (error instanceof UpstreamFailure) refuse(response, stream, error.status, error.message)
    // On a connection that served before, a close crosses the request: clients know that and ask again.
    else if (upstream.reusedSocket) stream.destroy()
    else refuse(response, stream, 502, `${side.name} closed the connection (${codeOf(error) ?? 'no reason'})`)
  })
}

function passResponse(
  request: IncomingMessage,
  response: ServerResponse,
  incoming: IncomingMessage,
  side: HttpSide,
  findings: Findings,
): void {
  const status = incoming.statusCode ?? 502
  const raw = fieldsOf(incoming.rawHeaders)
  const redactor = side.secure ? side.secrets.redactor(findings) : undefined
  const fields = redactFields(endToEnd(raw), redactor).filter(
    ([name]) => request.httpVersion !== '1.0' || name.toLowerCase() !== 'transfer-encoding',
  )
  const words = redactor === undefined ? incoming.statusMessage : redactor.text(incoming.statusMessage ?? '')
  // It will not take another request on that connection, so nor do we on ours.
  if (incoming.httpVersion === '1.0' || /\bclose\b/i.test(fieldOf(raw, 'connection') ?? ''))
    response.shouldKeepAlive = false
  // Cut short: the guest must not take it for whole.
  incoming.on('error', () => response.destroy())

  const bodiless = request.method === 'HEAD' || status === 204 || status === 304
  const length = Number(fieldOf(fields, 'content-length') ?? Number.NaN)
  const end = (): void => {
    const trailers = fieldsOf(incoming.rawTrailers)
    if (trailers.length > 0) response.addTrailers(trailers)
    response.end()
  }

  if (redactor === undefined || bodiless || !isText(fields)) {
    response.writeHead(status, words, fields.flat())
    flushSoon(response)
    incoming.on('end', end)
    incoming.pipe(response, { end: false })
    return
  }
  const unsized = fields.filter(([name]) => name.toLowerCase() !== 'content-length')
  if (length <= MOST_HELD_BYTES) {
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.on('end', () => {
      const content = Buffer.from(redactor.text(Buffer.concat(chunks).toString('latin1')), 'latin1')
      response.writeHead(status, words, [...unsized.flat(), 'Content-Length', String(content.length)])
      response.end(content)
    })
    return
  }
  response.writeHead(status, words, unsized.flat())
  flushSoon(response)
  const through = redactor.stream()
  through.on('end', end)
  incoming.pipe(through).pipe(response, { end: false })
}

/** A head goes out with the start of its body, if there is one already: two small packets wait for each other's acknowledgement. */
export function flushSoon(message: OutgoingMessage): void {
  setImmediate(() => {
    if (!message.destroyed) message.flushHeaders()
  })
}

const redactFields = (fields: readonly Field[], redactor: Replacer | undefined): Field[] =>
  redactor === undefined ? [...fields] : fields.map(([name, value]) => [name, redactor.text(value)])

/** Text that is not compressed: what an echo service sends. */
const isText = (fields: readonly Field[]): boolean => {
  const type = fieldOf(fields, 'content-type')?.split(';', 1)[0]?.trim().toLowerCase() ?? ''
  const plain = (fieldOf(fields, 'content-encoding') ?? 'identity').toLowerCase() === 'identity'
  return (
    plain &&
    /^(?:text\/|application\/(?:[a-z0-9.+-]*\+)?(?:json|xml|javascript|x-www-form-urlencoded|x-ndjson)$)/.test(type)
  )
}

/** An answer of ours; the connection ends with it. */
export function answer(response: ServerResponse, status: number, text: string): void {
  response.shouldKeepAlive = false
  const content = `reve sandbox: ${text}\n`
  response.writeHead(status, [
    'Content-Type',
    'text/plain; charset=utf-8',
    'Content-Length',
    String(Buffer.byteLength(content)),
  ])
  response.end(content)
}

function refuse(response: ServerResponse, stream: Duplex, status: number, text: string): void {
  if (response.headersSent) stream.destroy()
  else answer(response, status, text)
}
