import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loadLua } from '@reve/lua-runtime'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { luaHost } from '../src/lua-host.ts'
import { canBoot, type GuestVm, startVm } from './guest-vm.ts'

describe.skipIf(!(await canBoot()))('what a script reaches in the guest', () => {
  let guest: GuestVm
  beforeAll(async () => {
    guest = await startVm()
  })
  afterAll(() => guest.vm.stop())

  /** Runs a tool's body, and gives its text or why there is none. */
  const run = async (lua: string): Promise<string> => {
    const source = `tool("t", { description = "d", run = function(args, ctx)\n${lua}\nend })`
    await using runtime = await loadLua({ tools: [{ file: 'tools/t.lua', source }] })
    return await runtime.call('t', {}, luaHost(guest.vm, '/workspace')).catch((error: unknown) => String(error))
  }

  test('ctx.exec gives code and both streams, bytes as they are', async () => {
    expect(
      await run(`local r = ctx.exec { cmd = "cat; printf '\\\\0\\\\377' >&2; exit 3", stdin = "in\\0put" }
        return r.code .. " " .. #r.stdout .. " " .. #r.stderr .. " " .. r.stderr:byte(2) .. " " .. tostring(r.timed_out)`),
    ).toBe('3 6 2 255 false')
    expect(
      await run(`local r = ctx.exec { cmd = { "sh", "-c", 'echo "$1 $X"; pwd', "sh", "it's $HOME" }, env = { X = "y" }, cwd = "/tmp" }
        return r.stdout`),
    ).toBe("it's $HOME y\n/tmp\n")
  })

  test('ctx.exec stops a command that is out of time', async () => {
    expect(
      await run(
        'local r = ctx.exec { cmd = "echo a; sleep 60", timeout = 5 } return r.code .. tostring(r.timed_out) .. r.stdout',
      ),
    ).toBe('124truea\n')
  })

  test('ctx.exec refuses what it does not know, at the line', async () => {
    expect(await run('return (ctx.exec { command = "x" })')).toMatch(
      /tools\/t\.lua:2: ctx\.exec: command unknown key; known are cmd, timeout, stdin, env, cwd/,
    )
    expect(await run('return (ctx.exec { cmd = "x", timeout = "5" })')).toContain(
      'ctx.exec: timeout must be a number of seconds',
    )
  })

  test('ctx.write and ctx.read carry bytes, make folders, and are seen on the host', async () => {
    expect(
      await run(`ctx.write("deep/er/file.bin", "a\\0\\xff\\n", { mode = 493 })
        return #ctx.read("deep/er/file.bin") .. " " .. ctx.read("/workspace/deep/er/file.bin", { offset = 1, limit = 2 }):byte(2)`),
    ).toBe('4 255')
    const file = join(guest.workspace, 'deep/er/file.bin')
    expect([...(await readFile(file))]).toEqual([97, 0, 255, 10])
    expect((await stat(file)).mode & 0o777).toBe(0o755)
    await writeFile(join(guest.workspace, 'host.txt'), 'from the host')
    expect(await run('return ctx.read("host.txt")')).toBe('from the host')
  })

  test('ctx.read says what is not there, and what is too large', async () => {
    expect(await run('return (ctx.read("nowhere"))')).toMatch(/tools\/t\.lua:2: ctx\.read: .*nowhere/)
    expect(await run('ctx.sh("truncate -s 17M big") return (ctx.read("big"))')).toContain(
      'big has more than 16777216 bytes; give offset and limit',
    )
    expect(await run('return #ctx.read("big", { limit = 5 })')).toBe('5')
  })
})
