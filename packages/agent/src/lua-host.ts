import { didYouMean, isReveError } from '@reve/base'
import type { HostFunction, JsonValue, LuaHostCalls, LuaValue } from '@reve/lua-runtime'
import type { MicroVm } from '@reve/sandbox-microvm'
import * as v from 'valibot'
import { keptBytes } from './guest.ts'

/** Where a script's words go; texts of an author's own, to be made fit for a terminal. */
export type LuaOutlets = {
  readonly progress?: (text: string) => void
  /** `ctx.log` and `print` */
  readonly log?: (text: string) => void
}

/** A file that `ctx.read` gives has at most so many bytes, unless it is asked for more. */
const READ_BYTES = 16 << 20

/** What every `ctx` reaches: commands and files in the microVM, and nothing of the host. */
export function luaHost(vm: MicroVm, workdir: string, { progress, log }: LuaOutlets = {}): LuaHostCalls {
  return {
    workdir,
    sh: async (command, signal) => {
      const result = await vm.exec({ argv: ['sh', '-lc', command], signal, maxOutputBytes: keptBytes })
      return { stdout: result.stdout, stderr: result.stderr, exitCode: result.exitCode }
    },
    functions: { exec: execIn(vm), read: readIn(vm, workdir), write: writeIn(vm, workdir) },
    ...(progress && { progress }),
    ...(log && { log, print: log }),
  }
}

const bytes = v.union([v.string(), v.instance(Uint8Array)], 'must be a string')
const words = v.array(v.string('must be a string'), 'must be a string or a list of strings')

const execKeys = ['cmd', 'timeout', 'stdin', 'env', 'cwd'] as const
const ExecArguments = v.strictObject(
  {
    cmd: v.union(
      [v.pipe(v.string(), v.nonEmpty('must not be empty')), v.pipe(words, v.minLength(1, 'must not be empty'))],
      'must be a command, or a list of a program and its arguments',
    ),
    timeout: v.optional(
      v.pipe(v.number('must be a number of seconds'), v.minValue(0.001, 'must be more than 0'), v.maxValue(2_147_483)),
    ),
    stdin: v.optional(bytes),
    env: v.optional(v.record(v.string(), v.string('must be a string'), 'must be a table of strings')),
    cwd: v.optional(v.string('must be a string')),
  },
  (issue) => keyMessage(issue, execKeys, 'takes a table like { cmd = "make test", timeout = 60 }'),
)

/** `ctx.exec { cmd, timeout, stdin, env, cwd }` → `{ code, stdout, stderr, timed_out, truncated }` */
const execIn =
  (vm: MicroVm): HostFunction =>
  async ([given], signal) => {
    const { cmd, timeout, stdin, env, cwd } = parsed(ExecArguments, given)
    const result = await vm.exec({
      // A list is no shell's: nothing in it needs quoting.
      argv: typeof cmd === 'string' ? ['sh', '-lc', cmd] : cmd,
      signal,
      maxOutputBytes: keptBytes,
      ...(timeout === undefined ? {} : { timeoutMs: Math.ceil(timeout * 1000) }),
      ...(stdin === undefined ? {} : { stdin }),
      ...(env === undefined ? {} : { env }),
      ...(cwd === undefined ? {} : { cwd }),
    })
    const { exitCode, stdout, stderr, timedOut, stdoutBytes, stderrBytes } = result
    const truncated = stdoutBytes > stdout.length || stderrBytes > stderr.length
    return { code: exitCode, stdout, stderr, timed_out: timedOut, truncated }
  }

const path = v.pipe(v.string('must be a path'), v.nonEmpty('must be a path'))
const readKeys = ['offset', 'limit'] as const
const ReadOptions = v.optional(
  v.strictObject(
    {
      offset: v.optional(v.pipe(v.number('must be a number of bytes'), v.safeInteger(), v.minValue(0))),
      limit: v.optional(v.pipe(v.number('must be a number of bytes'), v.safeInteger(), v.minValue(0))),
    },
    (issue) => keyMessage(issue, readKeys, 'takes a path and a table like { offset = 0, limit = 1000 }'),
  ),
  {},
)

/** `ctx.read(path, { offset, limit })`, in bytes */
const readIn =
  (vm: MicroVm, workdir: string): HostFunction =>
  async ([name, given], signal) => {
    const { offset, limit } = parsed(ReadOptions, given ?? undefined)
    const most = limit ?? READ_BYTES
    const file = parsed(path, name)
    const stream = vm.readFile(inGuest(file, workdir), {
      signal,
      // One more shows that there is more.
      maxBytes: limit ?? READ_BYTES + 1,
      ...(offset === undefined ? {} : { offset }),
    })
    const chunks: Uint8Array[] = []
    for await (const chunk of stream) chunks.push(chunk)
    const all = Buffer.concat(chunks)
    if (all.length > most) throw new Error(`${file} has more than ${READ_BYTES} bytes; give offset and limit`)
    return new Uint8Array(all)
  }

const WriteOptions = v.optional(
  v.strictObject({ mode: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(0o7777))) }, (issue) =>
    keyMessage(issue, ['mode'], 'takes a path, a string and a table like { mode = tonumber("755", 8) }'),
  ),
  {},
)

/** `ctx.write(path, bytes, { mode })`: all of it or nothing; folders are made. */
const writeIn =
  (vm: MicroVm, workdir: string): HostFunction =>
  async ([name, contents, given], signal) => {
    const { mode } = parsed(WriteOptions, given ?? undefined)
    const file = inGuest(parsed(path, name), workdir)
    const text = parsed(bytes, contents)
    const options = { signal, atomic: true, ...(mode === undefined ? {} : { mode }) }
    try {
      await vm.writeFile(file, text, options)
    } catch (error) {
      if (!(isReveError(error) && error.code === 'not_found')) throw error
      await vm.exec({ argv: ['mkdir', '-p', '--', file.slice(0, file.lastIndexOf('/')) || '/'], signal })
      await vm.writeFile(file, text, options)
    }
    return undefined
  }

const inGuest = (name: string, workdir: string): string => (name.startsWith('/') ? name : `${workdir}/${name}`)

function keyMessage(issue: v.StrictObjectIssue, known: readonly string[], shape: string): string {
  if (issue.expected === 'never')
    return `unknown key${didYouMean(String(issue.path?.at(-1)?.key), known)}; known are ${known.join(', ')}`
  return issue.path === undefined || issue.expected === 'Object' ? shape : 'is missing'
}

/** The value that a script gave, or an error in its author's words. */
export function parsed<T extends v.GenericSchema>(schema: T, given: unknown): v.InferOutput<T> {
  const result = v.safeParse(schema, given)
  if (result.success) return result.output
  // A key that is not known often is one that is missing, written wrong.
  const issue = result.issues.find(({ expected }) => expected === 'never') ?? result.issues[0]
  const where = v.getDotPath(issue)
  throw new Error(`${where ? `${where} ` : ''}${issue.message}`)
}

/** A value that left Lua, as JSON; bytes and integers that JSON does not have are refused, naming where they stand. */
export function jsonOf(value: LuaValue, at = 'the value'): JsonValue {
  if (value instanceof Uint8Array) throw new Error(`${at} is no UTF-8 text`)
  if (typeof value === 'bigint') throw new Error(`${at} is an integer beyond ±(2^53-1)`)
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error(`${at} is ${value}`)
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map((item: LuaValue, index) => jsonOf(item, `${at}[${index + 1}]`))
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, jsonOf(item, `${at}.${key}`)]))
}
