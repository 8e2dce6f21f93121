import { blake3 } from '@noble/hashes/blake3.js'
import { bytesToHex } from '@noble/hashes/utils.js'

/** Version of the encoding in docs/action-key.md, and of everything that a result means. A change is a cache miss by design. */
export const keyVersion = 1

/** All that changes the result of an action; docs/action-key.md gives each field's meaning and the order. */
export type KeyInputs = {
  readonly tree: string
  readonly argv: readonly string[]
  readonly cwd: string
  /** The whole environment that differs between actions: constants and the caller's, without paths of the slot. */
  readonly env: Readonly<Record<string, string>>
  readonly image: string | null
  /** Name and effective isolation of the sandbox, such as `local uid=65534 gid=65534`. */
  readonly sandbox: string
  readonly network: boolean
  readonly gitignore: boolean
  /** In-tree paths that the caches take out of the result. */
  readonly cachePaths: readonly string[]
  readonly host: string
}

const utf8 = new TextEncoder()
const byBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b))

function length(n: number): Uint8Array {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setUint32(0, n)
  return bytes
}

/** Canonical bytes of an action: equal inputs give equal bytes, different inputs different ones (every part has its length). */
export function encodeKeyInputs(inputs: KeyInputs): Uint8Array {
  const parts: Uint8Array[] = [utf8.encode(`reve action key ${keyVersion}\n`)]
  const string = (value: string): void => {
    const bytes = utf8.encode(value)
    parts.push(length(bytes.length), bytes)
  }
  const list = (values: readonly string[]): void => {
    parts.push(length(values.length))
    values.forEach(string)
  }
  const flag = (value: boolean): void => void parts.push(Uint8Array.of(value ? 1 : 0))

  string(inputs.tree)
  list(inputs.argv)
  string(inputs.cwd)
  list(
    Object.entries(inputs.env)
      .sort(([a], [b]) => byBytes(a, b))
      .flat(),
  )
  list(inputs.image === null ? [] : [inputs.image])
  string(inputs.sandbox)
  flag(inputs.network)
  flag(inputs.gitignore)
  list([...inputs.cachePaths].sort(byBytes))
  string(inputs.host)
  return Buffer.concat(parts)
}

/** The action key: BLAKE3-256 of the canonical encoding, 64 lowercase hex. */
export function actionKey(inputs: KeyInputs): string {
  return bytesToHex(blake3(encodeKeyInputs(inputs)))
}
