import { blake3 as nobleBlake3 } from '@noble/hashes/blake3.js'
import { StoreError } from './errors.ts'

/** A hash in the making. */
export type HashStream = { update(bytes: Uint8Array): void; digest(): Buffer }

/** BLAKE3-256, plain and keyed. */
export type Hasher = {
  /** Which implementation it is: `native`, `wasm` or `js`. */
  readonly name: 'native' | 'wasm' | 'js'
  hash(bytes: Uint8Array): Buffer
  /** Keyed mode; the key has 32 bytes. */
  keyed(key: Uint8Array, bytes: Uint8Array): Buffer
  stream(): HashStream
}

const view = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** Pure JavaScript: works everywhere, and is what the tests compare with. */
export const jsHasher: Hasher = {
  name: 'js',
  hash: (bytes) => view(nobleBlake3(bytes)),
  keyed: (key, bytes) => view(nobleBlake3(bytes, { key })),
  stream: () => {
    const state = nobleBlake3.create()
    return { update: (bytes) => void state.update(bytes), digest: () => view(state.digest()) }
  },
}

async function wasmHasher(): Promise<Hasher> {
  const { createBLAKE3 } = await import('hash-wasm')
  const plain = await createBLAKE3()
  // A key is fixed when an instance is made, which is asynchronous: the keys that are used are few and made ahead.
  const keyed = new Map<string, Awaited<ReturnType<typeof createBLAKE3>>>()
  for (const key of Object.values(treeKeys)) keyed.set(key.toString('hex'), await createBLAKE3(256, key))
  return {
    name: 'wasm',
    hash: (bytes) => view(plain.init().update(bytes).digest('binary')),
    keyed: (key, bytes) => {
      const instance = keyed.get(view(key).toString('hex'))
      return instance === undefined ? jsHasher.keyed(key, bytes) : view(instance.init().update(bytes).digest('binary'))
    },
    stream: () => {
      // One instance serves several streams at once: each keeps its own saved state.
      let state = plain.init().save()
      return {
        update: (bytes) => {
          state = plain.load(state).update(bytes).save()
        },
        digest: () => view(plain.load(state).digest('binary')),
      }
    },
  }
}

type NativeStream = { update(bytes: Uint8Array): NativeStream; digestBuffer(): Buffer }
type NativeModule = {
  readonly blake3: (bytes: Uint8Array) => Buffer
  readonly Blake3Hasher: { new (): NativeStream; newKeyed(key: Buffer): NativeStream }
}

const isNative = (module: unknown): module is NativeModule =>
  typeof module === 'object' &&
  module !== null &&
  'blake3' in module &&
  typeof module.blake3 === 'function' &&
  'Blake3Hasher' in module

async function nativeHasher(): Promise<Hasher> {
  // A name that the compiler does not follow: the package is optional and may be absent.
  const name: string = '@napi-rs/blake-hash'
  const imported: unknown = await import(name)
  const module = isNative(imported)
    ? imported
    : typeof imported === 'object' && imported !== null && 'default' in imported
      ? imported.default
      : undefined
  if (!isNative(module)) throw new TypeError(`${name} has another face than expected`)
  const { blake3, Blake3Hasher } = module
  return {
    name: 'native',
    hash: (bytes) => blake3(bytes),
    keyed: (key, bytes) => Blake3Hasher.newKeyed(view(key)).update(bytes).digestBuffer(),
    stream: () => {
      const state = new Blake3Hasher()
      return { update: (bytes) => void state.update(bytes), digest: () => state.digestBuffer() }
    },
  }
}

/** Keys of the tree hashes: 32 ASCII bytes each, part of the format. */
export const treeKeys = {
  directory: Buffer.from('reve content-store directory v1.'),
  chunk: Buffer.from('reve content-store dir-chunk v1.'),
} as const

/** Lengths around BLAKE3's block and chunk borders, with the hash of that many bytes of 0, 1, … 250, 0, 1, … (plain; keyed for directories). */
export const knownAnswers: readonly { readonly length: number; readonly plain: string; readonly keyed: string }[] = [
  {
    length: 0,
    plain: 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262',
    keyed: '6f9c0145ec58ddbb740c13d2d771e8b6f7fc21771a28aafab179f7e4882a3a96',
  },
  {
    length: 1,
    plain: '2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213',
    keyed: '268445520ad12b2c402c125f164def6a613687a7a8e1cca19bab2815b6209f29',
  },
  {
    length: 63,
    plain: 'e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b',
    keyed: '12a71404a463a2e4ba7505b2fad00496542f6e30dbb01179494a25272b8009f6',
  },
  {
    length: 64,
    plain: '4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98',
    keyed: 'd41d35f30fab7b3f478bde94c53c74eb2d0779065dc33696841aab5ff4ca1057',
  },
  {
    length: 65,
    plain: 'de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee',
    keyed: '4f1a15c81c7f3f14b145d563acc22db8b96c988524fdad93ebe13f77bf08d040',
  },
  {
    length: 1023,
    plain: '10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11',
    keyed: 'cf87a240643dac2b41ae9a85a8bd1723baf81159b4031c3f61f80dd9682238ff',
  },
  {
    length: 1024,
    plain: '42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7',
    keyed: '57437117c86dddaf9f35534acbcc9d968e93399abd57276dc51f186b9e8ccb24',
  },
  {
    length: 1025,
    plain: 'd00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444',
    keyed: 'e316e9ed382469e54ce9ee42fa0ad6085eebc8043daceb4e8e22e05807552209',
  },
  {
    length: 2048,
    plain: 'e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a',
    keyed: '13ae67aef6350aee30bb665a1405baccf7a8c9cf0d6a23ad39e4bd66de3d46ca',
  },
  {
    length: 2049,
    plain: '5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030',
    keyed: '3292fc941ef43670960d7935c458ff5e42892fe9f10659d01a923bc39a68b137',
  },
  {
    length: 8193,
    plain: 'bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b',
    keyed: '763c3e42f70aa460c70577cd945a0c2dff2c8d2703a09210471545dbf52a8c2c',
  },
  {
    length: 65537,
    plain: '7c99f9840a73dfcb6e5bfe4ff6d1558acab7e015640790c26411818bdbe17eca',
    keyed: '335c16009440b599f00baad7c38ed5fa9a1e0f379a44c99658f871383c643187',
  },
]

/** The input of the known answers. */
export const answerInput = (length: number): Uint8Array => Uint8Array.from({ length }, (_, index) => index % 251)

/** Whether an implementation gives the known answers, whole and in pieces. */
export function answersRight(hasher: Hasher): boolean {
  return knownAnswers.every(({ length, plain, keyed }) => {
    const input = answerInput(length)
    const stream = hasher.stream()
    for (let at = 0; at < length; at += 1000) stream.update(input.subarray(at, at + 1000))
    return (
      hasher.hash(input).toString('hex') === plain &&
      hasher.keyed(treeKeys.directory, input).toString('hex') === keyed &&
      stream.digest().toString('hex') === plain
    )
  })
}

/** The implementations, fastest first. */
export const hasherMakers: readonly (() => Promise<Hasher>)[] = [
  nativeHasher,
  wasmHasher,
  () => Promise.resolve(jsHasher),
]

let chosen: Promise<Hasher> | undefined

/** The fastest implementation that is installed here and gives the known answers; chosen once per process. */
export function chooseHasher(): Promise<Hasher> {
  chosen ??= firstRight()
  return chosen
}

async function firstRight(): Promise<Hasher> {
  const faults: unknown[] = []
  for (const make of hasherMakers) {
    try {
      const hasher = await make()
      if (answersRight(hasher)) return hasher
      faults.push(new Error(`the ${hasher.name} BLAKE3 gives wrong hashes`))
    } catch (error) {
      faults.push(error)
    }
  }
  throw new StoreError('io', 'no implementation of BLAKE3 works here', { cause: new AggregateError(faults) })
}
