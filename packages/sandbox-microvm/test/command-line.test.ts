import { describe, expect, test } from 'vitest'
import { DEFAULT_SEARCH_PATH } from '../src/host-process.ts'
import { boxed, watched } from '../src/qemu/box.ts'
import { type Machine, qemuArguments } from '../src/qemu/command-line.ts'

const machine: Machine = {
  name: 'reve-x',
  accelerator: 'tcg',
  cpus: 2,
  memoryMiB: 512,
  vmlinux: '/cache/vmlinux',
  initrd: '/cache/initrd',
  agentSocket: '/run/agent',
  qmpSocket: '/run/qmp',
  disk: { overlay: '/state/disk.qcow2', base: '/cache/root.ext4' },
  shares: [{ tag: 'share0', path: '/home/a,b=c/work space', readonly: false }],
}

describe("QEMU's arguments", () => {
  test('give it no network, no display, no default device, no configuration file, no program to start', () => {
    const args = qemuArguments(machine)
    for (const expected of ['-nodefaults', '-no-user-config', '-no-reboot']) expect(args).toContain(expected)
    expect(args[args.indexOf('-sandbox') + 1]).toBe(
      'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    )
    expect(args[args.indexOf('-display') + 1]).toBe('none')
    expect(args.filter((arg) => /^-(netdev|nic|net|vnc|usb|virtfs|monitor|serial)$/.test(arg))).toEqual(['-serial'])
    const devices = args.filter((_, index) => args[index - 1] === '-device').map((device) => device.split(',')[0])
    expect(devices).toEqual(['virtio-serial-pci', 'virtserialport', 'virtio-blk-pci', 'virtio-9p-pci'])
  })

  test('take any path: a comma in one starts no other option', () => {
    const args = qemuArguments({ ...machine, agentSocket: '/run/x,server=on' })
    expect(args).toContain('local,id=share0,path=/home/a,,b=c/work space,security_model=none,multidevs=remap')
    expect(args).toContain('socket,id=agent,path=/run/x,,server=on')
  })

  test("name the disk's base themselves: what stands in the disk's header is not followed", () => {
    const nodes = qemuArguments(machine)
      .filter((_, index, all) => all[index - 1] === '-blockdev')
      .map((node) => JSON.parse(node) as Record<string, unknown>)
    expect(nodes.find((node) => node['node-name'] === 'root')).toMatchObject({ driver: 'qcow2', backing: 'base' })
    expect(
      nodes.filter((node) => String(node['node-name']).startsWith('base')).map((node) => node['read-only']),
    ).toEqual([true, true])
  })

  test('say what becomes of a memory that is a file, and of the disk of a machine that is saved', () => {
    const option = (args: readonly string[], name: string): string => args[args.indexOf(name) + 1] ?? ''
    const saving = qemuArguments({ ...machine, disk: 'placeholder', memory: { path: '/cache/a,b', use: 'save' } })
    expect(option(saving, '-object')).toBe('memory-backend-file,id=ram,size=512M,mem-path=/cache/a,,b,share=on')
    expect(option(saving, '-machine')).toMatch(/,memory-backend=ram$/)
    expect(option(saving, '-blockdev')).toContain('"driver":"null-co"')
    expect(saving).not.toContain('-incoming')
    const own = qemuArguments({ ...machine, memory: { path: '/run/memory', use: 'private' } })
    expect(option(own, '-object')).toMatch(/,share=off$/)
    const shared = qemuArguments({ ...machine, memory: { path: '/cache/memory', use: 'shared' } })
    expect(option(shared, '-object')).toMatch(/,share=off,readonly=on,rom=off$/)
    for (const args of [own, shared]) expect(args.slice(-2)).toEqual(['-incoming', 'defer'])
    // The machine is the same one, whatever its disk is made of.
    const devices = (args: readonly string[]): readonly string[] =>
      args.filter((_, index) => args[index - 1] === '-device')
    expect(devices(saving)).toEqual(devices(own))
  })

  test('weaken the guest where it is emulated, and nowhere else', () => {
    const line = (accelerator: 'tcg' | 'kvm'): string => {
      const args = qemuArguments({ ...machine, accelerator })
      return `${args[args.indexOf('-cpu') + 1]} ${args[args.indexOf('-append') + 1]}`
    }
    expect(line('tcg')).toMatch(/^Nehalem .*norandmaps nokaslr/)
    expect(line('kvm')).toMatch(/^host (?!.*(norandmaps|nokaslr))/)
  })

  test('make shares read only on the host side too', () => {
    const args = qemuArguments({ ...machine, shares: [{ tag: 'share0', path: '/x', readonly: true }] })
    expect(args).toContain('local,id=share0,path=/x,security_model=none,multidevs=remap,readonly=on')
  })
})

describe('the box', () => {
  const qemu = { program: 'qemu-system-x86_64', path: '/usr/bin/qemu-system-x86_64', args: ['-x'] } as const

  test('has no network, no capability, and only these paths', () => {
    const { program, args } = boxed(qemu, {
      readonly: ['/cache/vmlinux'],
      writable: ['/run/x', '/home/w'],
      devices: ['/dev/kvm'],
    })
    expect(program).toBe('bwrap')
    for (const option of ['--unshare-all', '--die-with-parent', '--new-session']) expect(args).toContain(option)
    expect(args[args.indexOf('--cap-drop') + 1]).toBe('ALL')
    const bound = args.flatMap((arg, index) =>
      /^--(ro-|dev-)?bind(-try)?$/.test(arg) ? [`${arg} ${args[index + 1]}`] : [],
    )
    expect(bound).toEqual([
      '--ro-bind /usr',
      '--ro-bind-try /etc/ld.so.cache',
      '--ro-bind-try /etc/alternatives',
      '--ro-bind /cache/vmlinux',
      '--bind /run/x',
      '--bind /home/w',
      '--dev-bind /dev/kvm',
    ])
    expect(args.slice(args.indexOf('--'))).toEqual(['--', qemu.path, '-x'])
  })

  test('where there is none: a watcher, and no capability for root', () => {
    const root = watched(qemu, DEFAULT_SEARCH_PATH, true)
    expect(root.program).toBe('node')
    expect(root.args.slice(2)).toEqual([
      expect.stringMatching(/\/setpriv$/),
      '--inh-caps=-all',
      '--bounding-set=-all',
      '--no-new-privs',
      '--',
      qemu.path,
      '-x',
    ])
    expect(watched(qemu, DEFAULT_SEARCH_PATH, false).args.slice(2)).toEqual([qemu.path, '-x'])
  })
})
