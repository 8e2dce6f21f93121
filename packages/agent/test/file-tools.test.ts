import { mkdir, readFile, readdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonObject } from '@reve/providers/model'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bashTool } from '../src/command-tools.ts'
import { editTool, readTool, writeTool } from '../src/file-tools.ts'
import { callTool, canBoot, type GuestVm, startVm } from './guest-vm.ts'

/** One pixel. */
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==',
  'base64',
)

describe.skipIf(!(await canBoot()))('files of the guest', () => {
  let guest: GuestVm
  beforeAll(async () => {
    guest = await startVm()
  })
  afterAll(() => guest.vm.stop())

  const read = (args: JsonObject) => callTool(readTool(guest.vm), args)
  const write = (args: JsonObject) => callTool(writeTool(guest.vm), args)
  const edit = (args: JsonObject) => callTool(editTool(guest.vm), args)
  const bash = (command: string) => callTool(bashTool(guest.vm), { command })
  const at = (path: string): string => join(guest.workspace, path)

  describe('read', () => {
    test('numbers lines, from an offset, up to a limit, and says how to go on', async () => {
      await writeFile(at('ten'), Array.from({ length: 10 }, (_, index) => `line ${index + 1}\n`).join(''))
      expect((await read({ path: 'ten', limit: 2 })).text).toBe(
        '    1  line 1\n    2  line 2\n\n[8 more lines in file. Use offset=3 to continue.]',
      )
      expect((await read({ path: 'ten', offset: 9 })).text).toBe('    9  line 9\n   10  line 10')
      expect((await read({ path: 'ten', offset: 9, limit: 5 })).text).toBe('    9  line 9\n   10  line 10')
      expect((await read({ path: 'ten', offset: -5, limit: 1 })).text).toContain('    1  line 1')
      expect(await read({ path: 'ten', offset: 11 })).toEqual({
        text: 'Offset 11 is beyond end of file (10 lines total)',
        isError: true,
      })
      expect(await read({ path: 'ten', limit: 0 })).toEqual({ text: 'read: limit: must be at least 1', isError: true })
      expect(await read({ path: 'ten', offset: 1.5 })).toMatchObject({ isError: true })
      expect(await read({ path: '' })).toMatchObject({ isError: true })
    })

    test('an unfinished last line counts, an empty file is one', async () => {
      await writeFile(at('unfinished'), 'a\nb')
      await writeFile(at('empty'), '')
      expect((await read({ path: 'unfinished' })).text).toBe('    1  a\n    2  b')
      expect((await read({ path: 'unfinished', offset: 2 })).text).toBe('    2  b')
      expect((await read({ path: 'empty' })).text).toBe('(empty file)')
    })

    test('a long file is shown as far as it fits, and read on from there to its end, however large it is', async () => {
      await bash('seq 1 3000000 >/tmp/large')
      const { text } = await read({ path: '/tmp/large' })
      expect(text.length).toBeLessThanOrEqual(24_000)
      const [, more, offset] = /\n\n\[(\d+) more lines in file\. Use offset=(\d+) to continue\.\]$/.exec(text) ?? []
      expect(Number(more) + Number(offset)).toBe(3_000_001)
      expect((await read({ path: '/tmp/large', offset: Number(offset), limit: 1 })).text).toContain(`  ${offset}\n`)
      expect((await read({ path: '/tmp/large', offset: 3_000_000 })).text).toBe('3000000  3000000')
    })

    test('a line that is too long is said, and what comes after it is there', async () => {
      await bash('{ echo first; head -c 3000000 /dev/zero | tr "\\0" x; echo; echo last; } >/tmp/long-line')
      expect((await read({ path: '/tmp/long-line' })).text).toBe(
        '    1  first\n\n[2 more lines in file. Use offset=2 to continue.]',
      )
      const refused = await read({ path: '/tmp/long-line', offset: 2 })
      expect(refused).toMatchObject({ isError: true, text: expect.stringContaining('sed -n 2p') })
      expect(refused.text).toContain('offset=3')
      expect((await read({ path: '/tmp/long-line', offset: 3 })).text).toBe('    3  last')
    })

    test('names that look like options, have spaces or line feeds, or are in another language', async () => {
      for (const name of ['-n', '--help', 'two words', 'ファイル', "it's", 'two\nlines', '$(touch x)']) {
        await writeFile(at(name), `in a file\n`)
        expect((await read({ path: name })).text).toBe('    1  in a file')
      }
      expect(await readdir(guest.workspace)).not.toContain('x')
    })

    test('what is missing, no file, or no text is told', async () => {
      await writeFile(at('binary'), new Uint8Array([1, 0, 2, 255]))
      await writeFile(at('utf-16'), Buffer.from('\uFEFFtext', 'utf16le'))
      await bash('mkfifo /tmp/pipe; ln -s nowhere /tmp/dangling')
      const messages = {
        missing: 'no such file: missing',
        '/tmp/dangling': 'no such file: /tmp/dangling',
        '/etc': '/etc is a directory; use ls',
        '/tmp/pipe': '/tmp/pipe is not a regular file',
        '/dev/zero': '/dev/zero is not a regular file',
        binary: expect.stringContaining('binary is not UTF-8 text'),
        'utf-16': expect.stringContaining('utf-16 is not UTF-8 text'),
      }
      for (const [path, text] of Object.entries(messages)) expect(await read({ path })).toEqual({ text, isError: true })
    })

    test('text in another encoding is shown as far as it goes, and CRLF is said', async () => {
      await writeFile(at('latin-1'), Buffer.from('caf\xe9 au lait\n', 'latin1'))
      await writeFile(at('crlf'), 'a\r\nb\r\n')
      expect((await read({ path: 'latin-1' })).text).toMatch(
        /^ {4}1 {2}caf\uFFFD au lait\n\n\[Bytes that are not UTF-8/,
      )
      expect((await read({ path: 'crlf' })).text).toBe(
        '    1  a\n    2  b\n\n[The lines end in CRLF; edit keeps that.]',
      )
      await writeFile(at('mixed'), 'a\r\nb\n')
      expect((await read({ path: 'mixed' })).text).toBe('    1  a\r\n    2  b')
    })

    test('an image is seen by its contents, and a broken one is not sent', async () => {
      await writeFile(at('pixel.dat'), png)
      await writeFile(at('half.png'), png.subarray(0, 40))
      await writeFile(at('story.gif'), 'GIF89a is a text\n')
      const { text, isError } = await read({ path: 'pixel.dat' })
      expect([JSON.parse(text), isError]).toEqual([
        [
          { type: 'text', text: `image/png, 1×1 pixels, ${png.length} bytes` },
          { type: 'image', mimeType: 'image/png', data: png.toString('base64') },
        ],
        false,
      ])
      expect(await read({ path: 'half.png' })).toEqual({
        text: 'half.png: it begins as a PNG, but its end is missing',
        isError: true,
      })
      expect((await read({ path: 'story.gif' })).text).toBe('    1  GIF89a is a text')
      await bash('cat half.png /dev/zero | head -c 4000000 >/tmp/large.png')
      expect((await read({ path: '/tmp/large.png' })).text).toBe(
        '/tmp/large.png is an image of 4000000 bytes; make one of at most 3750000 of it',
      )
    })
  })

  describe('write', () => {
    test('makes folders, keeps modes, replaces the target of a link', async () => {
      expect((await write({ path: 'deep/er/file', content: 'é\n' })).text).toBe('wrote 3 bytes to deep/er/file')
      expect(await readFile(at('deep/er/file'), 'utf8')).toBe('é\n')
      expect((await stat(at('deep/er/file'))).mode & 0o777).toBe(0o644)
      await writeFile(at('script'), 'echo old\n', { mode: 0o755 })
      await symlink('script', at('alias'))
      expect((await write({ path: 'alias', content: 'echo new\n' })).text).toBe('wrote 9 bytes to alias')
      expect(await readFile(at('script'), 'utf8')).toBe('echo new\n')
      expect((await stat(at('script'))).mode & 0o777).toBe(0o755)
      expect((await write({ path: '/in-the-guest', content: '' })).text).toBe('wrote 0 bytes to /in-the-guest')
      expect((await read({ path: '/in-the-guest' })).text).toBe('(empty file)')
    })

    test('takes any name and any text, and leaves nothing else behind', async () => {
      await mkdir(at('names'))
      const names = ['-rf', 'a b', 'two\nlines', "'", '`id`', '\u001b[2J']
      const content = '\uFEFF\u0000$x\r\n\\n"\'`\n'.repeat(10_000)
      for (const name of names) await write({ path: `names/${name}`, content })
      expect((await readdir(at('names'))).toSorted()).toEqual(names.toSorted())
      for (const name of names) expect(await readFile(at(`names/${name}`), 'utf8')).toBe(content)
    })

    test('refuses what is no file, and a disk that is full keeps the old contents', async () => {
      await symlink('loop', at('loop'))
      const messages = {
        '/tmp': '/tmp is a directory; use ls',
        'new/': 'new/ is a directory; use ls',
        '/dev/null': '/dev/null is not a regular file',
        loop: 'loop is a link that leads nowhere',
      }
      for (const [path, text] of Object.entries(messages))
        expect(await write({ path, content: 'x' })).toEqual({ text, isError: true })
      await bash('mkdir /small && mount -t tmpfs -o size=64k none /small && echo old >/small/file')
      const full = await write({ path: '/small/file', content: 'x'.repeat(100_000) })
      expect(full).toMatchObject({ isError: true, text: expect.stringContaining('No space left') })
      expect((await bash('cat /small/file; ls -A /small')).text).toBe('old\nfile')
    })
  })

  describe('edit', () => {
    test('replaces one exact text and keeps line ends, mark, mode and bytes that are no text', async () => {
      const before = Buffer.concat([Buffer.from('\uFEFFone\r\ntwo\r\n'), Buffer.from([0xff, 0x00, 0x0a])])
      await writeFile(at('odd'), before, { mode: 0o750 })
      expect((await edit({ path: 'odd', old: 'one\ntwo\n', new: '1\n2\n3\n' })).text).toBe('edited odd')
      expect(await readFile(at('odd'))).toEqual(
        Buffer.concat([Buffer.from('\uFEFF1\r\n2\r\n3\r\n'), Buffer.from([0xff, 0x00, 0x0a])]),
      )
      expect((await stat(at('odd'))).mode & 0o777).toBe(0o750)
    })

    test('one that is ambiguous or finds nothing changes nothing, and says what there is', async () => {
      await writeFile(at('twice'), 'x\nx\n  indented\n')
      expect(await edit({ path: 'twice', old: 'x', new: 'y' })).toEqual({
        text: 'that text appears 2 times (lines 1, 2); include enough context to make it unique',
        isError: true,
      })
      expect(await edit({ path: 'twice', old: '\tindented', new: 'y' })).toEqual({
        text: 'that text does not appear in the file; line 3 differs only in white space; the file has "  indented"',
        isError: true,
      })
      expect(await edit({ path: 'twice', old: 'x', new: 'x' })).toMatchObject({ isError: true })
      expect(await edit({ path: 'twice', old: '', new: 'x' })).toMatchObject({ isError: true })
      expect(await readFile(at('twice'), 'utf8')).toBe('x\nx\n  indented\n')
      expect((await edit({ path: 'twice', old: 'x', new: 'y', replace_all: true })).text).toBe(
        'edited twice in 2 places',
      )
      expect(await edit({ path: 'missing', old: 'x', new: 'y' })).toEqual({
        text: 'no such file: missing',
        isError: true,
      })
    })

    test('edits of one file at once all happen', async () => {
      await writeFile(at('counters'), Array.from({ length: 4 }, (_, index) => `counter ${index} = 0\n`).join(''))
      await symlink('counters', at('counters-too'))
      const results = await Promise.all(
        Array.from({ length: 4 }, (_, index) =>
          edit({
            path: index % 2 === 0 ? 'counters' : 'counters-too',
            old: `counter ${index} = 0`,
            new: `counter ${index} = 1`,
          }),
        ),
      )
      expect(results.filter(({ isError }) => isError)).toEqual([])
      expect(await readFile(at('counters'), 'utf8')).toBe(
        Array.from({ length: 4 }, (_, index) => `counter ${index} = 1\n`).join(''),
      )
    })

    test('a cancelled call that waits for its turn does not happen', async () => {
      await writeFile(at('queued'), 'one\n')
      const controller = new AbortController()
      const first = edit({ path: 'queued', old: 'one', new: 'two' })
      const second = callTool(
        editTool(guest.vm),
        { path: 'queued', old: 'two', new: 'three' },
        { signal: controller.signal },
      )
      controller.abort()
      await first
      await expect(second).rejects.toThrow('aborted')
      expect(await readFile(at('queued'), 'utf8')).toBe('two\n')
    })
  })
})
