import type { Duplex } from 'node:stream'
import {
  connect,
  createSecureContext,
  createServer,
  getCACertificates,
  type SecureContext,
  type TLSSocket,
} from 'node:tls'
import { codeOf } from '@reve/base'

/** A finished handshake, or the code of what went wrong; then the stream is destroyed. */
export type TlsResult =
  | { readonly ok: true; readonly socket: TLSSocket }
  | { readonly ok: false; readonly code?: string }

const failure = (error: unknown): TlsResult => {
  const code = codeOf(error)
  return code === undefined ? { ok: false } : { ok: false, code }
}

/** Serves TLS to a guest with a certificate of ours, HTTP/1.1 only. */
export function acceptTls(stream: Duplex, context: SecureContext, timeoutMs: number): Promise<TlsResult> {
  return new Promise((resolve) => {
    // One server for one connection: it is what tells which handshake failed.
    const server = createServer({
      ALPNProtocols: ['http/1.1'],
      handshakeTimeout: timeoutMs,
      SNICallback: (_name, done) => done(null, context),
    })
    const fail = (result: TlsResult): void => {
      resolve(result)
      stream.destroy()
    }
    // A client that does not trust us may just close, and only the stream knows.
    const gone = (): void => fail({ ok: false, code: 'ECONNRESET' })
    stream.once('end', gone)
    stream.once('close', gone)
    server.once('secureConnection', (socket) => {
      stream.off('end', gone)
      stream.off('close', gone)
      resolve({ ok: true, socket })
    })
    server.once('tlsClientError', (error) => fail(failure(error)))
    server.emit('connection', stream)
  })
}

/**
 * TLS with servers, as a client that verifies them: against what Node and the system trust, and `ca`. The environment cannot
 * turn that off.
 */
export function createTlsClient(
  ca: readonly string[],
  timeoutMs: number,
): (socket: Duplex, name: string) => Promise<TlsResult> {
  let trust: SecureContext | undefined
  return (socket, name) =>
    new Promise((resolve) => {
      // Hundreds of certificates: read once, when first needed.
      trust ??= createSecureContext({
        ca: [...new Set([...getCACertificates('default'), ...getCACertificates('system'), ...ca])],
        minVersion: 'TLSv1.2',
      })
      const secure = connect({
        socket,
        servername: name,
        secureContext: trust,
        ALPNProtocols: ['http/1.1'],
        rejectUnauthorized: true,
      })
      const end = (result: TlsResult): void => {
        clearTimeout(timer)
        secure.off('error', failed)
        secure.off('close', closed)
        if (!result.ok) {
          secure.on('error', () => secure.destroy())
          secure.destroy()
          socket.destroy()
        }
        resolve(result)
      }
      const failed = (error: Error): void => end(failure(error))
      const closed = (): void => end({ ok: false, code: 'ECONNRESET' })
      const timer = setTimeout(() => end({ ok: false, code: 'ETIMEDOUT' }), timeoutMs)
      secure.once('error', failed)
      secure.once('close', closed)
      secure.once('secureConnect', () => end({ ok: true, socket: secure }))
    })
}
