import { execFileSync } from 'node:child_process'
import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { folderWith, reve } from './run-cli.ts'

/** A folder with a root file system that has a shell, and a cache of its own. */
async function place() {
  const folder = await folderWith({ 'root/etc/os-release': 'ID=alpine\n' })
  await mkdir(join(folder, 'root', 'bin'))
  await symlink('/etc/passwd', join(folder, 'root', 'link'))
  execFileSync('cp', ['/bin/sh', join(folder, 'root', 'bin', 'sh')])
  const image = (...args: readonly string[]) =>
    reve(['image', ...args], folder, { env: { XDG_CACHE_HOME: join(folder, 'cache') } })
  return { folder, image }
}

describe('reve image', () => {
  test('makes an image of a folder, lists it and removes it', async () => {
    const { folder, image } = await place()
    expect(await image()).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('no images yet') })
    const built = await image('build', 'dir:root')
    expect(built).toMatchObject({ code: 0, stdout: expect.stringContaining(`dir:${folder}/root`) })
    const [id = ''] = built.stdout.split(' ')
    const listed = await image('ls')
    expect(listed.stdout).toMatch(
      new RegExp(`^${id} +[\\d.]+ [KM]iB  \\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\dZ +dir:${folder}/root\\n$`),
    )
    expect(JSON.parse((await image('ls', '--json')).stdout)).toMatchObject([
      { refs: [`dir:${folder}/root`], users: [] },
    ])
    expect(await image('rm', id)).toMatchObject({ code: 0, stdout: expect.stringMatching(/^removed 1 image, /) })
    expect(await image('rm', id)).toMatchObject({ code: 1, stderr: expect.stringContaining('no image') })
  })

  test('says what is wrong with an image, and what to do', async () => {
    const { image } = await place()
    expect(await image('build', 'dir:root', '--packages', 'git')).toMatchObject({
      code: 3,
      stderr: expect.stringMatching(/is alpine.*provision = false/),
    })
    expect(await image('pull', '127.0.0.1:1/none')).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('cannot be reached'),
    })
    expect(await image('pull', 'NOT AN IMAGE')).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('An image is'),
    })
    expect(await image('build')).toMatchObject({ code: 3, stderr: expect.stringContaining('agent') })
    expect(await image('frob')).toMatchObject({ code: 2 })
  })
})
