import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { createMicroVm, type MicroVm, MicroVmError } from '../src/index.ts'
import { findProgram, HOST_PROGRAMS, type HostProgram } from '../src/host-process.ts'
import { toolchainCommands } from '../src/toolchain.ts'
import { bench, folder, removeFolders, sh, until, wait, whyNoVm } from './helpers.ts'

const why = await whyNoVm()
const vms: MicroVm[] = []
const children: ChildProcess[] = []
const made: typeof bench = (...args) => {
  const it = bench(...args)
  vms.push(it.vm)
  return it
}
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  for (const vm of vms.splice(0)) await vm.stop()
})
afterAll(removeFolders)

const disks = (stateDir: string): readonly string[] =>
  existsSync(stateDir) ? readdirSync(stateDir).filter((name) => name.endsWith('.qcow2')) : []

/** Pids of the processes whose arguments name this VM. */
const processesOf = (name: string): readonly number[] =>
  readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .filter((pid) => existsSync(`/proc/${pid}/cmdline`) && commandLine(pid).includes(`\0-name\0reve-${name}\0`))
    .map(Number)
const commandLine = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1')
  } catch (error) {
    if (error instanceof Error) return ''
    throw error
  }
}

const failure = async (work: Promise<unknown>): Promise<MicroVmError> => {
  const error: unknown = await work.then(
    () => new Error('it worked'),
    (thrown: unknown) => thrown,
  )
  if (error instanceof MicroVmError) return error
  throw error
}

/** The usual programs without bubblewrap: what a host without it has. */
function withoutBox(): readonly string[] {
  const path = folder()
  for (const program of Object.keys(HOST_PROGRAMS) as HostProgram[]) {
    const found = findProgram(program)
    if (found !== undefined && program !== 'bwrap' && program !== 'node') symlinkSync(found, join(path, program))
  }
  return [path]
}

describe.skipIf(why !== undefined)('a VM', () => {
  test('keeps its disk over a stop, and starts again by itself', async () => {
    const { vm, spec, events } = made({ name: 'keeps' })
    expect(vm.status()).toEqual({ state: 'stopped', backend: 'qemu' })
    expect(disks(spec.stateDir)).toEqual([])
    await Promise.all([vm.start(), vm.start(), sh(vm, 'echo mine > /root/file; echo tmp > /tmp/file')])
    expect(vm.status()).toMatchObject({
      state: 'running',
      backend: 'qemu',
      accelerator: expect.stringMatching(/^(kvm|tcg)$/),
      pid: expect.any(Number),
    })
    expect(processesOf('keeps').length).toBeGreaterThan(0)
    await Promise.all([vm.stop(), vm.stop()])
    expect(vm.status().state).toBe('stopped')
    await until(() => processesOf('keeps').length === 0, 'QEMU is gone')
    expect((await sh(vm, 'cat /root/file /tmp/file; df -m / | tail -1 | tr -s " " | cut -d" " -f2')).out).toMatch(
      /^mine\ntmp\n(3[5-9]|40)\d\d\n$/,
    )
    expect(
      events.filter((event) => event.type === 'stage' && event.stage === 'restore' && event.state === 'done'),
    ).toHaveLength(2)
    await vm.remove()
    expect(disks(spec.stateDir)).toEqual([])
    expect((await sh(vm, 'cat /root/file')).code).toBe(1)
  })

  test('stops when nobody has needed it for a while, not while somebody does', async () => {
    const { vm } = made({ name: 'idle', idleStopMs: 400 })
    const lease = await vm.acquire()
    await wait(1200)
    expect(vm.status().state).toBe('running')
    expect((await sh(vm, 'sleep 1; echo slow > /root/file')).code).toBe(0)
    lease.release()
    await until(() => vm.status().state === 'stopped', 'it is stopped')
    await until(() => processesOf('idle').length === 0, 'QEMU is gone')
    expect((await sh(vm, 'cat /root/file')).out).toBe('slow\n')
  })

  test('tells what it uses of this machine, while it runs', async () => {
    const { vm } = made({ name: 'uses' })
    expect(await vm.metrics()).toBeUndefined()
    await sh(vm, 'head -c 20000000 /dev/urandom > /root/file; sync')
    const before = await vm.metrics()
    expect(before).toMatchObject({ commands: { running: 0, begun: 1 } })
    expect(before?.diskBytes).toBeGreaterThan(20_000_000)
    expect(before?.memoryBytes).toBeGreaterThan(50_000_000)
    const busy = sh(vm, 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done')
    await until(async () => (await vm.metrics())?.commands.running === 1, 'it is counted')
    await busy
    const after = await vm.metrics()
    expect(after?.cpuMs).toBeGreaterThan(before?.cpuMs ?? Infinity)
    expect(after?.uptimeMs).toBeGreaterThan(before?.uptimeMs ?? Infinity)
    expect(after?.commands).toEqual({ running: 0, begun: 2 })
    await vm.stop()
    expect(await vm.metrics()).toBeUndefined()
  })

  test('is built anew when its disk would be another, and only then', async () => {
    const { vm, spec, host, events } = made({
      name: 'print',
      bootstrap: ['echo one > /root/boot', 'test "$PWD" = /workspace'],
    })
    await sh(vm, 'echo kept > /root/file')
    await vm.stop()
    const [first] = disks(spec.stateDir)
    const changed = createMicroVm(
      { ...spec, env: { A: '1' }, cpus: 1, memoryMiB: 400, egress: { kind: 'list', hosts: ['example.org'] } },
      host,
      { backend: 'qemu' },
    )
    vms.push(changed)
    expect((await sh(changed, 'cat /root/file /root/boot; echo $A')).out).toBe('kept\none\n1\n')
    await changed.stop()
    expect(disks(spec.stateDir)).toEqual([first])
    const larger = createMicroVm({ ...spec, diskMiB: 6144 }, host, { backend: 'qemu' })
    vms.push(larger)
    const size = 'cat /root/file; df -m / | tail -1 | tr -s " " | cut -d" " -f2'
    expect((await sh(larger, size)).out).toMatch(/^kept\n5[5-9]\d\d\n$/)
    await larger.stop()
    expect((await sh(vm, size)).out).toMatch(/^kept\n5[5-9]\d\d\n$/)
    expect(events).toContainEqual({
      type: 'notice',
      text: expect.stringMatching(/keeps its 6144 MiB, and 4096 are asked/),
    })
    await vm.stop()
    const rebuilt = createMicroVm({ ...spec, bootstrap: ['echo two > /root/boot'] }, host, { backend: 'qemu' })
    vms.push(rebuilt)
    expect((await sh(rebuilt, 'cat /root/boot; cat /root/file')).out).toBe('two\n')
    await rebuilt.stop()
    expect(disks(spec.stateDir)).toHaveLength(1)
    expect(disks(spec.stateDir)).not.toEqual([first])
    // The fingerprint's file is what a user removes to begin anew.
    await sh(rebuilt, 'echo kept > /root/file')
    await rebuilt.stop()
    rmSync(join(spec.stateDir, 'fingerprint'))
    expect((await sh(rebuilt, 'cat /root/file')).code).toBe(1)
  })

  test('gets its language tools once, and a login shell finds them', async () => {
    // What mise.run sends, and mise and npm themselves, are stubs that write down how they were called.
    const stubs = `cat > /usr/local/bin/curl <<'END'
#!/bin/sh
echo "curl $*" >> /root/log
for last; do :; done
test "$last" = https://mise.run || exit 6
cat > /tmp/mise-install <<'SCRIPT'
printf '#!/bin/sh\necho "mise $*" >> /root/log\nmkdir -p ~/.local/share/mise/shims\nprintf "#!/bin/sh\\\\necho its node\\\\n" > ~/.local/share/mise/shims/node\nchmod +x ~/.local/share/mise/shims/node\n' > "$MISE_INSTALL_PATH"
chmod +x "$MISE_INSTALL_PATH"
SCRIPT
END
printf '#!/bin/sh\necho "npm $*" >> /root/log\n' > /usr/local/bin/npm
chmod +x /usr/local/bin/curl /usr/local/bin/npm`
    const { vm } = made({
      name: 'tools',
      bootstrap: [stubs, ...toolchainCommands(['node@lts', 'go'], ['typescript@5'])],
    })
    const { out } = await sh(vm, 'cat /root/log; sh -lc node')
    expect(out.split('\n')).toEqual([
      expect.stringMatching(/^curl -fsSL .* https:\/\/mise\.run$/),
      'mise use -g -- node@lts go',
      'npm install -g --no-fund --no-audit -- typescript@5',
      'its node',
      '',
    ])
  })

  test('whose bootstrap fails leaves nothing new, and the old disk as it was', async () => {
    const { vm, spec, host } = made({
      name: 'boot',
      bootstrap: ['true', 'echo on the way; echo what is wrong >&2; exit 3'],
    })
    const error = await failure(vm.start())
    expect([error.code, error.message]).toEqual([
      'bootstrap_failed',
      expect.stringMatching(/^bootstrap 2\/2: .* ended with 3: what is wrong/),
    ])
    expect(disks(spec.stateDir)).toEqual([])
    await until(() => processesOf('boot').length === 0, 'QEMU is gone')
    const good = createMicroVm({ ...spec, bootstrap: [] }, host, { backend: 'qemu' })
    vms.push(good)
    await sh(good, 'echo kept > /root/file')
    await good.stop()
    expect((await failure(vm.start())).code).toBe('bootstrap_failed')
    expect((await sh(good, 'cat /root/file')).out).toBe('kept\n')
  })

  test('whose start is given up is gone', async () => {
    const { vm, spec } = made({ name: 'given-up' })
    const [first, second] = [new AbortController(), new AbortController()]
    const starts = [first, second].map(({ signal }) => failure(vm.start({ signal })))
    await until(() => processesOf('given-up').length > 0, 'QEMU runs')
    first.abort()
    expect((await starts[0])?.code).toBe('aborted')
    expect(vm.status().state).toBe('starting')
    second.abort()
    expect((await starts[1])?.code).toBe('aborted')
    expect([vm.status().state, disks(spec.stateDir)]).toEqual(['stopped', []])
    // A killed process is still in the list for the moment in which its memory is given back.
    await until(() => processesOf('given-up').length === 0, 'QEMU is gone')
    expect((await sh(vm, 'echo fine')).out).toBe('fine\n')
  })

  test('that is stopped ends what runs in it', async () => {
    const { vm } = made({ name: 'stopping' })
    await vm.start()
    const running = failure(vm.exec({ argv: ['sleep', '4000'] }))
    await vm.stop()
    expect((await running).code).toBe('stopped')
  })

  test('that dies says so to what ran in it, and comes up again', async () => {
    const { vm, events } = made({ name: 'dies' })
    await sh(vm, 'echo kept > /root/file; sync')
    const running = failure(vm.exec({ argv: ['sleep', '4000'] }))
    process.kill(vm.status().pid ?? 0, 'SIGKILL')
    expect((await running).code).toBe('guest_lost')
    await until(() => vm.status().state === 'stopped', 'it is stopped')
    expect(events.some((event) => event.type === 'notice' && event.text.startsWith('the VM "dies" ended'))).toBe(true)
    expect((await sh(vm, 'cat /root/file')).out).toBe('kept\n')
    // A guest that turns itself off, or whose kernel panics, is the same.
    expect((await failure(sh(vm, 'echo c > /proc/sysrq-trigger; sleep 100'))).code).toBe('guest_lost')
    expect((await sh(vm, 'cat /root/file')).out).toBe('kept\n')
  })

  test('whose QEMU dies while it boots is tried once more, aloud, and no more than once', async () => {
    const path = withoutBox()
    const [programs = ''] = path
    const real = findProgram('qemu-system-x86_64') ?? ''
    const qemu = join(programs, 'qemu-system-x86_64')
    const tries = join(programs, 'tries')
    rmSync(qemu)
    const dying = (times: number): void => {
      rmSync(tries, { force: true })
      writeFileSync(
        qemu,
        `#!/bin/sh\necho x >> ${tries}\n[ "$(/usr/bin/wc -l < ${tries})" -gt ${times} ] && exec ${real} "$@"\necho its last words >&2\nexit 1\n`,
        { mode: 0o755 },
      )
    }
    const it = made({ name: 'flaky' }, { searchPath: path, warmStart: false })
    dying(5)
    const error = await failure(it.vm.start())
    expect([error.code, error.message]).toEqual(['boot_failed', expect.stringContaining('its last words')])
    expect(readFileSync(tries, 'utf8')).toBe('x\nx\n')
    expect(disks(it.spec.stateDir)).toEqual([])
    dying(1)
    expect((await sh(it.vm, 'echo up')).out).toBe('up\n')
    expect(it.events).toContainEqual({
      type: 'notice',
      text: expect.stringMatching(/tried once more: .*its last words/),
    })
  })

  test('does not meet another one', async () => {
    const [one, two] = [made({ name: 'same' }), made({ name: 'same' })]
    await Promise.all([
      sh(one.vm, 'echo one > /root/who; echo one > who'),
      sh(two.vm, 'echo two > /root/who; echo two > who'),
    ])
    expect((await sh(one.vm, 'cat /root/who who')).out).toBe('one\none\n')
    expect((await sh(two.vm, 'cat /root/who who')).out).toBe('two\ntwo\n')
  })
})

describe.skipIf(why !== undefined)('the process that owns a VM', () => {
  const startOwner = async (it: ReturnType<typeof bench>): Promise<ChildProcess> => {
    const { onEvent: _, ...host } = it.host
    const child = spawn(
      process.execPath,
      [
        '--conditions=@reve/source',
        fileURLToPath(new URL('owner.ts', import.meta.url)),
        JSON.stringify(it.spec),
        JSON.stringify(host),
      ],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    )
    children.push(child)
    await new Promise<void>((resolve, reject) => {
      child.stdout?.setEncoding('utf8').on('data', (text: string) => (text.startsWith('up') ? resolve() : undefined))
      child.once('exit', (code) => reject(new Error(`the owner ended with ${code}`)))
    })
    return child
  }

  test('is named to whoever else wants it, and when it is killed the VM is gone and unharmed', async () => {
    const it = made({ name: 'owned' })
    const owner = await startOwner(it)
    const refused = await failure(it.vm.start())
    expect([refused.code, refused.message]).toEqual(['busy', expect.stringContaining(`process ${owner.pid}`)])
    expect((await failure(it.vm.remove())).code).toBe('busy')
    expect(processesOf('owned').length).toBeGreaterThan(0)
    owner.kill('SIGKILL')
    await until(() => processesOf('owned').length === 0, 'QEMU is gone')
    expect((await sh(it.vm, 'cat /root/before-the-kill')).out).toBe('written\n')
  })

  test('takes its VM along also where there is no box', async () => {
    const it = made({ name: 'unboxed' }, { searchPath: withoutBox() })
    const owner = await startOwner(it)
    owner.kill('SIGKILL')
    await until(() => processesOf('unboxed').length === 0, 'QEMU is gone')
    // At once, as somebody does who starts the program again.
    expect((await sh(it.vm, 'cat /root/before-the-kill')).out).toBe('written\n')
    expect(it.events).toContainEqual({ type: 'notice', text: expect.stringContaining('bubblewrap') })
    // Root without its capabilities may not make devices.
    expect((await sh(it.vm, 'mknod null c 1 3')).code).not.toBe(0)
    await it.vm.stop()
    expect(processesOf('unboxed')).toEqual([])
  })
})

describe('what a host lacks', () => {
  test('is named with the command that installs it', async () => {
    const it = made({}, { searchPath: [folder()], cacheDir: folder() })
    const error = await failure(it.vm.start())
    expect(error.code).toBe('missing_program')
    const sudo = process.getuid?.() === 0 ? '' : 'sudo '
    expect(error.message).toContain(
      `Install it with: ${sudo}apt-get install -y --no-install-recommends qemu-system-x86 bubblewrap mmdebstrap`,
    )
    expect(it.vm.status().state).toBe('stopped')
  })

  test.skipIf(why !== undefined)(
    'is told: a processor that is emulated, hosts that are listed and not reachable',
    async () => {
      const it = made({ name: 'closed', egress: { kind: 'list', hosts: ['example.org'] } })
      expect((await sh(it.vm, 'ls /sys/class/net')).out).toBe('lo\n')
      const told = (text: string): boolean =>
        it.events.some((event) => event.type === 'notice' && event.text.includes(text))
      expect([told('was given no network'), told('emulated')]).toEqual([true, it.vm.status().accelerator === 'tcg'])
    },
  )

  test.skipIf(why !== undefined)('an image that is gone from the cache makes a new disk, aloud', async () => {
    const it = made({ name: 'gone' })
    mkdirSync(it.spec.stateDir, { recursive: true })
    const { fingerprint } = await import('../src/index.ts')
    const wanted = fingerprint(it.spec)
    writeFileSync(join(it.spec.stateDir, 'fingerprint'), wanted)
    writeFileSync(join(it.spec.stateDir, `disk-${wanted.slice(0, 16)}-${'0'.repeat(16)}-${'0'.repeat(16)}.qcow2`), '')
    expect((await sh(it.vm, 'echo new')).out).toBe('new\n')
    expect(it.events).toContainEqual({ type: 'notice', text: expect.stringContaining('gone from the cache') })
    expect(disks(it.spec.stateDir)).toHaveLength(1)
  })
})
