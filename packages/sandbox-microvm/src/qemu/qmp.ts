import type { Duplex } from 'node:stream'
import { sanitiseLine } from '@reve/base'
import * as v from 'valibot'
import { MicroVmError } from '../errors.ts'

/** QEMU's own control channel. */
export type Qmp = {
  /** QEMU's version and that of its package, once it has greeted. */
  readonly version: Promise<string>
  /**
   * Has QEMU do something. `what` it answers is the caller's to check.
   *
   * @throws MicroVmError `boot_failed` with QEMU's own words, when it refuses, does not answer, or is gone.
   */
  execute(command: string, parameters?: Readonly<Record<string, unknown>>): Promise<unknown>
  /**
   * The data of the next event of that name that `wanted` is true of.
   *
   * @throws MicroVmError `boot_failed` when the channel ends before.
   */
  event(name: string, wanted: (data: unknown) => boolean): Promise<unknown>
  /** Asks it to write its disks out and end. */
  quit(): void
}

/** An answer comes within milliseconds; a machine that is that slow is broken. */
const ANSWER_MS = 60_000
/** No answer that is asked for is longer; whoever took QEMU over does not fill our memory. */
const LINE_BYTES = 1024 * 1024

const Version = v.object({ major: v.number(), minor: v.number(), micro: v.number() })
const Message = v.union([
  v.object({ QMP: v.object({ version: v.object({ qemu: Version, package: v.string() }) }) }),
  v.object({ return: v.unknown(), id: v.number() }),
  v.object({ error: v.object({ desc: v.string() }), id: v.number() }),
  v.object({ event: v.string(), data: v.optional(v.unknown()) }),
])

type Settle = { readonly resolve: (value: unknown) => void; readonly reject: (error: MicroVmError) => void }
type Wait = Settle & { readonly name: string; readonly wanted: (data: unknown) => boolean }

/** Speaks with QEMU over `stream`, which QEMU has connected; what ends it, or what it says wrong, ends every request. */
export function connectQmp(stream: Duplex): Qmp {
  const requests = new Map<number, Settle>()
  const waits = new Set<Wait>()
  const version = Promise.withResolvers<string>()
  // Not everybody asks for it.
  version.promise.catch(() => undefined)
  let nextId = 1
  let line = ''
  let lost: MicroVmError | undefined

  const fail = (text: string): void => {
    if (lost !== undefined) return
    lost = new MicroVmError('boot_failed', text)
    version.reject(lost)
    for (const { reject } of [...requests.values(), ...waits]) reject(lost)
    requests.clear()
    waits.clear()
    stream.destroy()
  }

  const handle = (text: string): void => {
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Message), text)
    if (!parsed.success) return fail("QEMU's control channel says what it should not")
    const message = parsed.output
    if ('QMP' in message) {
      const { qemu, package: build } = message.QMP.version
      version.resolve(`${qemu.major}.${qemu.minor}.${qemu.micro} ${build}`.trim())
    } else if ('event' in message) {
      for (const wait of waits) {
        if (wait.name !== message.event || !wait.wanted(message.data)) continue
        waits.delete(wait)
        wait.resolve(message.data)
      }
    } else {
      const request = requests.get(message.id)
      if (request === undefined) return fail('QEMU answers what nobody asked')
      requests.delete(message.id)
      if ('error' in message)
        request.reject(new MicroVmError('boot_failed', `QEMU refused: ${sanitiseLine(message.error.desc, 300)}`))
      else request.resolve(message.return)
    }
    return undefined
  }

  stream.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (line + chunk).split('\n')
    line = lines.pop() ?? ''
    for (const whole of lines) if (whole.trim() !== '' && lost === undefined) handle(whole)
    if (line.length > LINE_BYTES) fail("QEMU's control channel says what it should not")
  })
  stream.on('error', (error) => fail(`QEMU's control channel broke: ${sanitiseLine(String(error), 200)}`))
  for (const end of ['end', 'close']) stream.on(end, () => fail("QEMU's control channel is closed"))

  const execute = async (command: string, parameters: Readonly<Record<string, unknown>> = {}): Promise<unknown> => {
    if (lost !== undefined) throw lost
    const id = nextId++
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const timer = setTimeout(() => fail(`QEMU did not answer to ${command} within ${ANSWER_MS / 1000} s`), ANSWER_MS)
    requests.set(id, { resolve, reject })
    stream.write(`${JSON.stringify({ execute: command, arguments: parameters, id })}\n`)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
    }
  }
  // The first thing that it wants to hear; what is asked after that waits in line.
  const begun = execute('qmp_capabilities')
  begun.catch(() => undefined)

  return {
    version: version.promise,
    execute,
    event: (name, wanted) => {
      if (lost !== undefined) return Promise.reject(lost)
      const { promise, resolve, reject } = Promise.withResolvers<unknown>()
      waits.add({ name, wanted, resolve, reject })
      // Whoever waits may have given up meanwhile.
      promise.catch(() => undefined)
      return promise
    },
    quit: () => void execute('quit').catch(() => undefined),
  }
}
