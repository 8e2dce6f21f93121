import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const script = `
import { loadLua } from '@reve/lua-runtime'
const source = 'print("quiet") tool("t", { description = "d", run = function(_, ctx) print("quiet") return ctx.sh("x") end })'
const lua = await loadLua({ tools: [{ file: 't.lua', source }] })
const text = await lua.call('t', {}, { workdir: '/w', sh: async () => ({ stdout: 'out', stderr: '', exitCode: 0 }) })
process.exitCode = text === 'out' ? 7 : 1`

test('an idle runtime keeps no process alive, and nothing is printed', () => {
  const run = spawnSync(process.execPath, ['--conditions=@reve/source', '--input-type=module', '-e', script], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    encoding: 'utf8',
    timeout: 50_000,
  })
  expect(run).toMatchObject({ status: 7, stdout: '', stderr: '' })
})
