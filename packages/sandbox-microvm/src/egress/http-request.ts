import { type ClientRequest, type IncomingMessage, request as startRequest, type ServerResponse } from 'node:http'
import type { Duplex, Readable, Transform } from 'node:stream'
import { codeOf } from '@reve/base'
import { endToEnd, fieldOf, type Field, fieldsOf, judgeHead } from './http-head.ts'
import { deny, type HttpSide, type Line, MOST_HEAD_BYTES, MOST_HELD_BYTES } from './http-line.ts'
import { answer, flushSoon, passAnswer } from './http-answer.ts'
import type { Replacer } from './replace.ts'
import { type Findings, noFindings } from './secrets.ts'

/** apt has ten requests under way on one connection. */
const MOST_PIPELINED = 16
/** Each may have a head of 32 KiB. */
const MOST_REQUESTS = 1024

/** Takes one request to its host, or answers it here. `upgrading`: the bare stream, when it asks for a WebSocket. */
export function forward(line: Line, request: IncomingMessage, response: ServerResponse, upgrading?: Duplex): void {
  const { side } = line
  if (line.stream.destroyed) return
  line.active += 1
  line.all.active += 1
  response.once('close', () => {
    line.active -= 1
    line.all.active -= 1
  })
  response.sendDate = false
  if (line.active > MOST_PIPELINED || line.all.active > MOST_REQUESTS) {
    deny(side, 'limit')
    line.stream.destroy()
    return
  }

  const judged = judgeHead(
    {
      target: request.url ?? '',
      version: request.httpVersion,
      headers: request.rawHeaders,
    },
    side,
  )
  if (!judged.ok) {
    deny(side, judged.status === 400 ? 'malformed' : 'host_header', judged.asked)
    answer(response, judged.status, judged.text)
    return
  }

  const findings = noFindings()
  const { secrets } = side
  const fields = endToEnd(judged.fields).map(([name, value]): Field => {
    const changed = secrets.header(name, value, findings)
    return [name, side.secure ? changed : value]
  })
  const changedTarget = secrets.target(judged.target, findings)
  const target = side.secure ? changedTarget : judged.target
  const body = side.secure ? secrets.body(fieldOf(fields, 'content-type'), findings) : undefined
  if (!report(side, findings)) {
    answer(response, 502, problemText(findings))
    return
  }

  const transfer = fieldOf(fields, 'transfer-encoding') !== undefined
  const length = fieldOf(fields, 'content-length')
  const hasBody = transfer || (length !== undefined && length !== '0')
  const withLength = (value: string | undefined): Field[] => [
    ...fields.filter(([name]) => name.toLowerCase() !== 'content-length'),
    ...(value === undefined ? [] : [field('Content-Length', value)]),
    ...(value === undefined && !transfer ? [field('Transfer-Encoding', 'chunked')] : []),
  ]

  const start = (
    sent: readonly Field[],
    content: Uint8Array | undefined,
    replacer: Replacer | undefined,
  ): ClientRequest | undefined => {
    const ending = upgrading === undefined ? [] : [field('Connection', 'Upgrade'), field('Upgrade', 'websocket')]
    try {
      const upstream = startRequest({
        agent: line.agent,
        host: side.name,
        port: side.port,
        method: request.method ?? 'GET',
        path: target,
        headers: [...sent, ...ending].flat(),
        maxHeaderSize: MOST_HEAD_BYTES,
      })
      passAnswer(line, request, response, upstream, findings, upgrading)
      if (content !== undefined) upstream.end(content)
      else if (hasBody) sendBody(request, upstream, replacer?.stream())
      else upstream.end()
      return upstream
    } catch (error) {
      // Node refuses to write what it would not read.
      deny(side, 'malformed')
      answer(response, 400, `the request cannot be passed on (${codeOf(error) ?? 'malformed'})`)
      return undefined
    }
  }
  const send = (...parts: Parameters<typeof start>): void => {
    const before = line.turn
    const { promise, resolve } = Promise.withResolvers<void>()
    line.turn = promise
    void before.then(() => {
      const upstream = response.destroyed ? undefined : start(...parts)
      if (upstream === undefined) resolve()
      else upstream.once('close', resolve)
    })
  }

  if (!hasBody || body === undefined) {
    const none = !hasBody && length === undefined && !/^(?:GET|HEAD|OPTIONS|DELETE|TRACE)$/.test(request.method ?? '')
    send(none ? withLength('0') : fields, undefined, undefined)
    return
  }
  if (length === undefined || Number(length) > MOST_HELD_BYTES || line.active > 1) {
    send(withLength(undefined), undefined, counted(body, side, findings))
    return
  }
  if (request.headers.expect !== undefined) response.writeContinue()
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const content = Buffer.from(body.text(Buffer.concat(chunks).toString('latin1')), 'latin1')
    if (!report(side, findings)) {
      answer(response, 502, problemText(findings))
      return
    }
    send(
      withLength(String(content.length)).filter(([name]) => name.toLowerCase() !== 'expect'),
      content,
      undefined,
    )
  })
}

const field = (name: string, value: string): Field => [name, value]

/** A body that is not held whole: what was found in it is told at its end. */
const counted = (body: Replacer, side: HttpSide, findings: Findings): Replacer => ({
  ...body,
  stream: () => {
    const stream = body.stream()
    stream.on('end', () => report(side, findings))
    return stream
  },
})

function sendBody(request: IncomingMessage, upstream: ClientRequest, through: Transform | undefined): void {
  flushSoon(upstream)
  const end = (): void => {
    if (request.rawTrailers.length > 0) upstream.addTrailers(fieldsOf(request.rawTrailers))
    upstream.end()
  }
  const source: Readable = through === undefined ? request : request.pipe(through)
  source.on('end', end)
  source.pipe(upstream, { end: false })
}

/** Tells what became of the placeholders; whether the request may go out. */
function report(side: HttpSide, findings: Findings): boolean {
  const host = side.name
  for (const name of findings.withheld)
    side.report({ type: 'secret_withheld', name, host, reason: side.secure ? 'other_host' : 'plain_http' })
  if (!side.secure) {
    for (const name of findings.used) side.report({ type: 'secret_withheld', name, host, reason: 'plain_http' })
    return true
  }
  for (const { name, problem } of findings.problems.values()) side.report({ type: `secret_${problem}`, name, host })
  if (findings.problems.size > 0) return false
  for (const name of findings.used) side.report({ type: 'secret_used', name, host })
  return true
}

const problemText = (findings: Findings): string =>
  [...findings.problems.values()]
    .map(({ name, problem }) =>
      problem === 'missing'
        ? `the secret ${name} is not set on the host: set that variable and start the sandbox's program again`
        : `the value of the secret ${name} has characters that a header cannot carry`,
    )
    .join('; ')
