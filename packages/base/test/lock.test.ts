import { spawn, type ChildProcess } from 'node:child_process'
import { mkdir, mkdtemp, readdir, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { once } from 'node:events'
import { afterEach, expect, test } from 'vitest'
import { acquireLock, lockHolder, LockFileError, LockHeldError, tryAcquireLock } from '../src/index.ts'

const children: ChildProcess[] = []
afterEach(() => children.splice(0).forEach((child) => child.kill('SIGKILL')))

const folder = () => mkdtemp(join(tmpdir(), 'lock-'))

/** Another process that takes the lock, says so, and holds it until it is killed. */
async function holder(path: string): Promise<ChildProcess> {
  const code = `import { tryAcquireLock } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)}
tryAcquireLock(${JSON.stringify(path)}); console.log('held'); setInterval(() => {}, 1000)`
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  await once(child.stdout, 'data')
  return child
}

test('one holder; the refusal names its process; released, it can be taken again', async () => {
  const path = join(await folder(), 'lock')
  const lock = tryAcquireLock(path)
  expect(() => tryAcquireLock(path)).toThrow(LockHeldError)
  expect(lockHolder(path)).toEqual({ held: true, pid: process.pid })
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  lock.release()
  lock.release()
  expect(lockHolder(path)).toEqual({ held: false })
  using again = tryAcquireLock(path)
  expect(again.path).toBe(path)
})

test('a refused try in the holding process does not let another process in', async () => {
  const path = join(await folder(), 'lock')
  using _lock = tryAcquireLock(path)
  expect(() => tryAcquireLock(path)).toThrow(LockHeldError)
  expect(lockHolder(path).held).toBe(true)
  const code = `import { lockHolder } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)}
console.log(JSON.stringify(lockHolder(${JSON.stringify(path)})))`
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  const [output] = await once(child.stdout, 'data')
  expect(JSON.parse(String(output))).toEqual({ held: true, pid: process.pid })
})

test("another process's lock is refused naming it, and ends with it however it dies", async () => {
  const path = join(await folder(), 'lock')
  const child = await holder(path)
  expect(() => tryAcquireLock(path)).toThrow(`process ${child.pid}`)
  const waiting = acquireLock(path, { waitMs: 20_000 })
  child.kill('SIGKILL')
  const lock = await waiting
  expect(lockHolder(path)).toEqual({ held: true, pid: process.pid })
  lock.release()
})

test('two paths that lead to one file are one lock', async () => {
  const at = await folder()
  await mkdir(join(at, 'real'))
  await symlink(join(at, 'real'), join(at, 'alias'))
  using lock = tryAcquireLock(join(at, 'real', 'lock'))
  expect(() => tryAcquireLock(join(at, 'alias', 'lock'))).toThrow(LockHeldError)
  expect(lock.path).toBe(join(at, 'real', 'lock'))
})

test('of many that race, one wins', async () => {
  const path = join(await folder(), 'lock')
  const results = await Promise.allSettled(Array.from({ length: 10 }, () => acquireLock(path)))
  const won = results.filter((result) => result.status === 'fulfilled')
  expect(won).toHaveLength(1)
  won[0]?.value.release()
})

test('a wait ends with its signal', async () => {
  const path = join(await folder(), 'lock')
  using _lock = tryAcquireLock(path)
  const controller = new AbortController()
  const waiting = acquireLock(path, { waitMs: 60_000, signal: controller.signal })
  controller.abort(new Error('enough'))
  await expect(waiting).rejects.toThrow('enough')
})

test('what cannot be a lock is said', async () => {
  const at = await folder()
  expect(() => tryAcquireLock(join(at, 'missing', 'lock'))).toThrow(LockFileError)
  await writeFile(join(at, 'text'), 'this is no database, and long enough to be read as one'.repeat(10))
  expect(() => tryAcquireLock(join(at, 'text'))).toThrow(/cannot be/)
})

test('a process that is just reading who holds the lock is no holder', async () => {
  const path = join(await folder(), 'lock')
  tryAcquireLock(path).release()
  const code = `const database = require('better-sqlite3')(${JSON.stringify(path)})
database.exec('BEGIN'); database.prepare('SELECT pid FROM holder').get(); console.log('reading')
setTimeout(() => process.exit(), 300)`
  const child = spawn(process.execPath, ['-e', code], {
    cwd: import.meta.dirname,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  await once(child.stdout, 'data')
  using lock = tryAcquireLock(path, { pid: 4711 })
  expect(lock.path).toBe(path)
  expect(lockHolder(path)).toEqual({ held: true, pid: 4711 })
})

test('a lock whose object nobody keeps stays held', async () => {
  const path = join(await folder(), 'lock')
  const code = `import { tryAcquireLock } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)}
tryAcquireLock(${JSON.stringify(path)})
for (let round = 0; round < 5; round++) { globalThis.gc(); await new Promise((done) => setTimeout(done, 10)) }
console.log('collected'); setInterval(() => {}, 1000)`
  const child = spawn(process.execPath, ['--expose-gc', '--input-type=module-typescript', '-e', code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  await once(child.stdout, 'data')
  expect(lockHolder(path)).toEqual({ held: true, pid: child.pid })
})

test('a look makes no file', async () => {
  const at = await folder()
  expect(lockHolder(join(at, 'lock'))).toEqual({ held: false })
  expect(await readdir(at)).toEqual([])
})
