import { chmodSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { folder } from '../helpers.ts'
import { cleanUp, hasProgram, imageOf, type Member, run, tarOf } from './tools.ts'

afterAll(cleanUp)

const file = (name: string, data: string | Uint8Array = name): Member => ({ name, data })
const debugfs = (image: string, command: string): string => run('debugfs', ['-R', command, image])

/** The checker of the file system's own authors says that it is in order. */
const check = (image: string): string => run('e2fsck', ['-f', '-n', image])

// Another judge of whole images is the kernel of a guest: image-vm.test.ts.
describe.skipIf(!hasProgram('e2fsck') || !hasProgram('debugfs'))('an image', () => {
  test('of nothing is in order', async () => {
    expect(check(await imageOf([tarOf()]))).toMatch(/11\/8192 files/)
  })

  test('has owners, modes, times, links and devices as the archive says, whoever makes it', async () => {
    const image = await imageOf([
      tarOf(
        { name: 'bin/', type: '5', mode: 0o1777, uid: 70_000, gid: 80_000, mtime: 1_000_000_000 },
        { name: 'bin/su', data: 'x', mode: 0o4755 },
        { name: 'bin/other', type: '1', link: 'bin/su' },
        { name: 'short', type: '2', link: 'x'.repeat(59) },
        { name: 'long', type: '2', link: '', pax: { linkpath: 'y'.repeat(3000) } },
        { name: 'null', type: '3', major: 1, minor: 3, mode: 0o666 },
        { name: 'disk', type: '4', major: 300, minor: 70_000 },
        { name: 'pipe', type: '6' },
        { name: 'late', pax: { mtime: '5000000000.25' } },
        { name: 'early', pax: { mtime: '-5.5' } },
      ),
    ])
    check(image)
    expect(debugfs(image, 'stat /bin')).toMatch(/Type: directory\s+Mode:\s+01777[^]*User: 70000\s+Group: 80000/)
    expect(debugfs(image, 'stat /bin')).toMatch(/mtime: 0x3b9aca00/)
    expect(debugfs(image, 'stat /bin/su')).toMatch(/Type: regular\s+Mode:\s+04755[^]*Links: 2/)
    expect(debugfs(image, 'stat /short')).toMatch(new RegExp(`Fast link dest: "x{59}"`))
    expect(debugfs(image, 'stat /long')).toMatch(/Type: symlink[^]*Size: 3000/)
    expect(debugfs(image, 'cat /long')).toBe('y'.repeat(3000))
    expect(debugfs(image, 'stat /null')).toMatch(/character special[^]*Device major\/minor number: 01:03/)
    expect(debugfs(image, 'stat /disk')).toMatch(/block special[^]*Device major\/minor number: 300:70000/)
    expect(debugfs(image, 'stat /pipe')).toMatch(/Type: FIFO/)
    expect(debugfs(image, 'stat /late')).toMatch(/mtime: 0x2a05f200:3b9aca01/)
    expect(debugfs(image, 'stat /early')).toMatch(/mtime: 0xfffffffa:/)
  })

  test('has attributes, in the inode or beside it, and none of the host', async () => {
    const capability = Buffer.from('0100000200240000000000000000000000000000', 'hex')
    const image = await imageOf([
      tarOf(
        { name: 'ping', pax: { 'SCHILY.xattr.security.capability': capability } },
        {
          name: 'much',
          pax: {
            'SCHILY.xattr.user.big': 'z'.repeat(900),
            'SCHILY.xattr.user.a': '',
            'SCHILY.xattr.trusted.overlay.opaque': 'y',
          },
        },
      ),
    ])
    check(image)
    expect(debugfs(image, 'ea_list /ping')).toMatch(/security\.capability \(20\)/)
    expect(debugfs(image, 'ea_get /much user.big')).toContain('z'.repeat(900))
    expect(debugfs(image, 'ea_list /much')).not.toMatch(/overlay/)
    await expect(
      imageOf([tarOf({ name: 'more', pax: { 'SCHILY.xattr.user.x': 'z'.repeat(5000) } })]),
    ).rejects.toMatchObject({ code: 'image_failed' })
  })

  test('has folders of many blocks, with names of all lengths', async () => {
    const names = Array.from({ length: 3000 }, (_, index) => `many/${`${index}-`.padEnd((index % 250) + 5, 'n')}`)
    const image = await imageOf([tarOf(...names.map((name) => ({ name: 'x', data: name, pax: { path: name } })))])
    check(image)
    const out = folder()
    debugfs(image, `rdump /many ${out}`)
    for (const name of [names[0], names[249], names[2999]])
      expect(readFileSync(join(out, name ?? ''), 'utf8')).toBe(name)
  })

  test('keeps holes, and large files in several groups', async () => {
    const sparse = Buffer.alloc(20_000_000)
    for (let at = 0; at < 1000; at++) sparse.write(`part ${at}`, at * 20_000)
    const dense = Buffer.alloc(300_000_000, 'dense ')
    const image = await imageOf([tarOf(file('sparse', sparse), file('dense', dense), file('after'))])
    check(image)
    expect(statSync(image).size % (128 * 2 ** 20)).toBe(0)
    expect(debugfs(image, 'stat /sparse')).toMatch(/Blockcount: (8\d{3})\b/)
    const out = folder()
    for (const [name, bytes] of [
      ['sparse', sparse],
      ['dense', dense],
    ] as const) {
      debugfs(image, `dump /${name} ${join(out, name)}`)
      expect(readFileSync(join(out, name)).equals(bytes)).toBe(true)
    }
  })

  test('has room for more files than one group has', async () => {
    const names = Array.from({ length: 20_000 }, (_, index) => `d${index % 40}/f${index}`)
    const image = await imageOf([tarOf(...names.map((name) => ({ name, data: '' })))])
    expect(check(image)).toMatch(/200\d\d\/24576 files/)
  })

  test('is the same bytes for the same tree, whatever the order of the layers that made it', async () => {
    const a = await imageOf([
      tarOf(file('b'), file('a/x', 'low')),
      tarOf(file('a/x', 'high'), { name: 'a', type: '5' }),
    ])
    const b = await imageOf([tarOf({ name: 'a', type: '5' }), tarOf(file('a/x', 'high'), file('b'))])
    expect(readFileSync(a).equals(readFileSync(b))).toBe(true)
  })

  test("is what GNU's tar makes of the same archive", async () => {
    const root = folder()
    mkdirSync(join(root, 'out'))
    const members = fc.sample(
      fc.record({
        name: fc
          .array(fc.constantFrom('a', 'b', 'c', 'd'), { minLength: 1, maxLength: 4 })
          .map((parts) => parts.join('')),
        data: fc.uint8Array({ maxLength: 20_000 }),
        mode: fc.constantFrom(0o644, 0o755, 0o600),
      }),
      { numRuns: 100, seed: 4 },
    )
    const archive = tarOf(...members.map((member) => ({ ...member, name: `top/${member.name}` })))
    const image = await imageOf([archive])
    check(image)
    run('bash', ['-c', `cat > x.tar && tar -xf x.tar`], { cwd: root, input: archive })
    debugfs(image, `rdump /top ${join(root, 'out')}`)
    chmodSync(join(root, 'out', 'top'), 0o755)
    run('diff', ['-r', join(root, 'top'), join(root, 'out', 'top')])
  })
})
