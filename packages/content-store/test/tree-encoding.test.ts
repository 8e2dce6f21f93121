import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { jsHasher, treeKeys } from '../src/hasher.ts'
import { objectKind } from '../src/objects.ts'
import { decodeDirectory, encodeDirectory } from '../src/tree-chunks.ts'
import { decodeNode, type DirEntry, encodeIndex, encodeList } from '../src/tree-encoding.ts'
import { refusal } from './support.ts'

const hashOf = (kind: number, data: Buffer): Buffer =>
  jsHasher.keyed(kind === objectKind.directory ? treeKeys.directory : treeKeys.chunk, data)
const blobId = (text: string): string => jsHasher.hash(Buffer.from(text)).toString('hex')

/** The vectors of the format's page: JSON blocks in which `bytes` are hex. */
const page = readFileSync(new URL('../../../docs/store-format.md', import.meta.url), 'utf8')
type Vector =
  | { readonly what: 'blob'; readonly text: string; readonly id: string }
  | {
      readonly what: 'directory'
      readonly entries: readonly { readonly kind: DirEntry['kind']; readonly name: string; readonly id: string }[]
      readonly bytes: string
      readonly id: string
    }
  | {
      readonly what: 'numbered directory'
      readonly files: number
      readonly nodes: number
      readonly bytes: string
      readonly id: string
    }
const vectors = [...page.matchAll(/^```json\n([\s\S]*?)^```$/gm)].map((block): Vector => JSON.parse(block[1] ?? ''))

describe('the vectors of docs/store-format.md', () => {
  test('are there', () => {
    expect(vectors.length).toBeGreaterThanOrEqual(5)
  })

  test.each(vectors.map((vector) => [vector.what, vector] as const))('%s', (_, vector) => {
    switch (vector.what) {
      case 'blob':
        expect(blobId(vector.text)).toBe(vector.id)
        break
      case 'directory': {
        const entries = vector.entries.map((entry) => ({
          ...entry,
          name: Buffer.from(entry.name, 'hex').toString('latin1'),
        }))
        const { id, rows } = encodeDirectory(entries, hashOf)
        expect(rows.map((row) => row.data.toString('hex'))).toEqual([vector.bytes])
        expect(id).toBe(vector.id)
        expect(decodeNode(Buffer.from(vector.bytes, 'hex'))).toEqual({ level: 0, entries })
        break
      }
      case 'numbered directory': {
        const { id, rows } = encodeDirectory(numbered(vector.files), hashOf)
        expect(rows).toHaveLength(vector.nodes)
        expect(rows.at(-1)?.data.toString('hex')).toBe(vector.bytes)
        expect(id).toBe(vector.id)
        break
      }
    }
  })
})

function numbered(count: number): readonly DirEntry[] {
  const id = blobId('')
  return Array.from({ length: count }, (_, index) => ({
    name: `file-${String(index).padStart(6, '0')}`,
    kind: 'file' as const,
    id,
  }))
}

describe('chunks', () => {
  const name = fc
    .string({ unit: fc.constantFrom('a', 'b', 'c', 'x', 'é', '0', '1', '2'), minLength: 1, maxLength: 9 })
    .map((text) => Buffer.from(text).toString('latin1'))
  const entries = (most: number) =>
    fc
      .uniqueArray(name, { minLength: 0, maxLength: most, size: 'max' })
      .map((names): readonly DirEntry[] => names.sort().map((each) => ({ name: each, kind: 'file', id: blobId(each) })))

  test('what is encoded decodes to itself', () => {
    fc.assert(
      fc.property(entries(1500), (list) => {
        const { rows } = encodeDirectory(list, hashOf)
        const chunks = new Map(rows.slice(0, -1).map((row) => [row.hash.toString('hex'), row.data]))
        expect(
          decodeDirectory(rows.at(-1)?.data ?? Buffer.alloc(0), (id) => chunks.get(id) ?? Buffer.alloc(0)),
        ).toEqual(list)
        for (const row of rows) expect(row.data.length).toBeLessThanOrEqual(16_384)
      }),
      { numRuns: 30 },
    )
  })

  test('one more entry leaves nearly all nodes as they are', () => {
    const list = numbered(30_000)
    const before = new Set(encodeDirectory(list, hashOf).rows.map((row) => row.hash.toString('hex')))
    const more = list.toSpliced(15_000, 0, { name: 'file-014999-and-a-half', kind: 'file', id: blobId('') })
    const added = encodeDirectory(more, hashOf).rows.filter((row) => !before.has(row.hash.toString('hex')))
    expect(added.length).toBeLessThan(9)
    expect(added.reduce((sum, row) => sum + row.data.length, 0)).toBeLessThan(30_000)
  })

  test('names that would make one endless node, or a node each, do neither', () => {
    const long = Array.from({ length: 60 }, (_, index) => ({
      name: `${'n'.repeat(4000)}${String(index).padStart(3, '0')}`,
      kind: 'file' as const,
      id: blobId(''),
    }))
    const { rows } = encodeDirectory(long, hashOf)
    for (const row of rows) expect(row.data.length).toBeLessThanOrEqual(16_384)
    expect(rows.length).toBeLessThan(40)
  })

  test('a node that says something else than what is below it is refused', () => {
    const list = numbered(300)
    const { rows } = encodeDirectory(list, hashOf)
    const chunks = new Map(rows.slice(0, -1).map((row) => [row.hash.toString('hex'), row.data]))
    const root = decodeNode(rows.at(-1)?.data ?? Buffer.alloc(0))
    if (!('chunks' in root)) throw new Error('a list')
    const read = (id: string): Buffer => chunks.get(id) ?? Buffer.alloc(0)
    const [first, ...rest] = root.chunks
    if (first === undefined) throw new Error('empty')
    const decode = (changed: typeof root.chunks): unknown => decodeDirectory(encodeIndex(1, changed), read)
    expect(decode(root.chunks)).toEqual(list)
    refusal('corrupt', () => decode([{ ...first, count: first.count + 1 }, ...rest]))
    refusal('corrupt', () => decode([{ ...first, name: 'aaa' }, ...rest]))
    refusal('corrupt', () => decode([first, ...rest.slice(0, -1), { ...first, name: rest.at(-1)?.name ?? '' }]))
    refusal('corrupt', () => decodeDirectory(encodeIndex(2, root.chunks), read))
  })
})

describe('the decoder', () => {
  const id = blobId('')
  const list = (...names: readonly string[]): Buffer =>
    encodeList(names.map((name) => ({ name: Buffer.from(name).toString('latin1'), kind: 'file', id })))

  test.each([
    '',
    '.',
    '..',
    'a/b',
    'a\0',
    '.git',
    '.GIT',
    'git~1',
    '.git ',
    '.g\u200cit',
    '.git:x',
    'a\\.git',
    '..\u200d:x',
  ])('refuses the name %j', (name) => {
    refusal('corrupt', () => decodeNode(list(name)))
  })

  test('refuses names twice and out of order', () => {
    expect(refusal('corrupt', () => decodeNode(list('a', 'a'))).message).toContain('twice')
    expect(refusal('corrupt', () => decodeNode(list('b', 'a'))).message).toContain('out of order')
    expect(refusal('corrupt', () => decodeNode(list('é', 'z'))).message).toContain('out of order')
  })

  test('refuses a newer version as newer, not as damage', () => {
    const bytes = list('a')
    bytes[3] = 2
    refusal('newer_format', () => decodeNode(bytes))
  })

  test('any change of any byte is refused or decodes to something else that encodes to those bytes', () => {
    const good = encodeList([
      { name: 'a', kind: 'file', id },
      { name: 'b', kind: 'gitlink', id: 'c'.repeat(40) },
      { name: 'c', kind: 'directory', id },
    ])
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.nat(255), fc.nat(good.length), (at, value, cut) => {
        const bytes = Buffer.from(good)
        bytes[at] = value
        for (const each of [bytes, bytes.subarray(0, cut), Buffer.concat([bytes, Buffer.from([value])])]) {
          let node
          try {
            node = decodeNode(each)
          } catch (error) {
            expect(error).toHaveProperty('code', expect.stringMatching(/^(corrupt|newer_format)$/))
            continue
          }
          expect('entries' in node ? encodeList(node.entries) : encodeIndex(node.level, node.chunks)).toEqual(each)
        }
      }),
      { numRuns: 2000 },
    )
  })

  test('arbitrary bytes never do anything but be refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        refusal('corrupt', () =>
          decodeNode(Buffer.concat([Buffer.from('kct\x01'), Buffer.from([bytes[0] ?? 0, 0xff, 0xff, 0xff]), bytes])),
        )
      }),
    )
  })
})
