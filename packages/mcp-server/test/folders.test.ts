import { chmod, mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { initComputer, openComputer, openSeats } from '../src/index.ts'
import { serve, temporary } from './support.ts'

const options = { identity: { name: 'x', email: 'x@y' }, hostFingerprint: 'test' }

test('a folder with other things in it is left as it is', async () => {
  const root = await temporary()
  await chmod(root, 0o755)
  await writeFile(join(root, 'letter.txt'), '')
  await expect(initComputer(root)).rejects.toMatchObject({
    code: 'bad_option',
    message: expect.stringContaining('letter.txt'),
  })
  expect([(await stat(root)).mode & 0o777, await readdir(root)]).toEqual([0o755, ['letter.txt']])
})

test('a file is not a folder', async () => {
  const file = join(await temporary(), 'file')
  await writeFile(file, '')
  await expect(initComputer(file)).rejects.toMatchObject({
    code: 'bad_option',
    message: expect.stringContaining('is not a folder'),
  })
})

test('the root of a file system, and a computer that was being made, are taken', async () => {
  const root = await temporary()
  await mkdir(join(root, 'lost+found'))
  await writeFile(join(root, 'kc.lock'), '')
  expect(await initComputer(root)).toEqual({ created: true })
})

test('a computer that is served is found to be there', async () => {
  await using served = await serve()
  expect(await initComputer(served.computer.root)).toEqual({ created: false })
})

test('a work folder that others can write into is refused, and one that is there keeps its mode', async () => {
  const root = join(await temporary(), 'kc')
  await initComputer(root)
  const workDir = await temporary()
  await chmod(workDir, 0o1777)
  await expect(openComputer({ root, workDir, ...options })).rejects.toMatchObject({ code: 'bad_option' })
  expect((await stat(workDir)).mode & 0o7777).toBe(0o1777)
  await chmod(workDir, 0o750)
  await (await openComputer({ root, workDir, ...options })).close()
  expect((await stat(workDir)).mode & 0o7777).toBe(0o750)
  await (await openComputer({ root, workDir: join(workDir, 'new'), ...options })).close()
  expect((await stat(join(workDir, 'new'))).mode & 0o7777).toBe(0o711)
})

test('seats are made beside a server without touching what it works with', async () => {
  await using served = await serve()
  const inUse = join(served.computer.root, 'tmp', 'being-written')
  await writeFile(inUse, '')
  await using seats = await openSeats(served.computer.root)
  const { token } = seats.create('late')
  expect(served.computer.seats.authenticate(token)?.name).toBe('late')
  expect((await stat(inUse)).isFile()).toBe(true)
})

test('one token is one seat', async () => {
  await using served = await serve()
  const { seats } = served.computer
  const token = 'a-token-that-the-host-handed-in-0123'
  expect(seats.ensure('first', token).name).toBe('first')
  expect(seats.ensure('first', token).name).toBe('first')
  expect(() => seats.ensure('second', token)).toThrow(/is that of the seat "first".*kc seat remove first/)
  expect(seats.list().map(({ name }) => name)).toEqual(['first', 'tester'])
})
