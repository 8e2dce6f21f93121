import type { Accelerator } from '../spec.ts'

/** What a QEMU process is made of; every path is as QEMU itself sees it (inside of the box, where there is one). */
export type Machine = {
  readonly name: string
  readonly accelerator: Accelerator
  readonly cpus: number
  readonly memoryMiB: number
  readonly vmlinux: string
  readonly initrd: string
  readonly agentSocket: string
  readonly qmpSocket: string
  /** No disk: a boot that only tries the machine. */
  readonly disk?: { readonly overlay: string; readonly base: string }
  readonly shares: readonly { readonly tag: string; readonly path: string; readonly readonly: boolean }[]
}

/**
 * `norandmaps nokaslr` only where the processor is emulated: code that was translated once then serves every process. They
 * weaken address randomisation inside of the guest, which is the model's own, and cut the cost of a process to a quarter.
 */
const kernelLine = (machine: Machine): string =>
  [
    'quiet loglevel=1 panic=-1 console=ttyS0 mitigations=off cryptomgr.notests audit=0 lsm= random.trust_cpu=on init_on_alloc=0',
    ...(machine.accelerator === 'tcg' ? ['norandmaps nokaslr'] : []),
    ...(machine.disk === undefined ? ['reve.probe'] : []),
  ].join(' ')

/** Options of QEMU are lists with commas; a comma in a value is doubled. */
const value = (text: string): string => text.replaceAll(',', ',,')

/**
 * QEMU's arguments. There is no network card, no display, no USB, no default device and no configuration file; QEMU may
 * start no program and raise no privilege. The disk's backing file is named here, so what stands in the disk's own header
 * is not followed.
 */
export function qemuArguments(machine: Machine): readonly string[] {
  const { accelerator, disk } = machine
  const node = (options: object): readonly string[] => ['-blockdev', JSON.stringify(options)]
  // Emulated by several threads, QEMU 7.2 now and then dies of an assertion on a device's table of message interrupts while
  // the guest sets it up: no table, no such death.
  const interrupts = accelerator === 'tcg' ? ',vectors=0' : ''
  return [
    ...['-name', value(machine.name)],
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...['-machine', 'q35,usb=off,sata=off,smbus=off,vmport=off,hpet=off'],
    ...(accelerator === 'tcg'
      ? ['-accel', 'tcg,thread=multi', '-cpu', 'Nehalem']
      : ['-accel', accelerator, '-cpu', 'host']),
    ...['-smp', String(machine.cpus), '-m', `${machine.memoryMiB}M`],
    ...['-kernel', machine.vmlinux, '-initrd', machine.initrd, '-append', kernelLine(machine)],
    ...['-chardev', 'stdio,id=console,signal=off', '-serial', 'chardev:console'],
    ...['-device', `virtio-serial-pci${interrupts}`, '-chardev', `socket,id=agent,path=${value(machine.agentSocket)}`],
    ...['-device', 'virtserialport,chardev=agent,name=agent'],
    ...['-chardev', `socket,id=monitor,path=${value(machine.qmpSocket)}`, '-mon', 'chardev=monitor,mode=control'],
    ...(disk === undefined
      ? []
      : [
          ...node({ 'node-name': 'base-file', driver: 'file', filename: disk.base, 'read-only': true }),
          ...node({ 'node-name': 'base', driver: 'raw', file: 'base-file', 'read-only': true }),
          ...node({ 'node-name': 'root-file', driver: 'file', filename: disk.overlay }),
          ...node({ 'node-name': 'root', driver: 'qcow2', file: 'root-file', backing: 'base' }),
          ...['-device', `virtio-blk-pci,drive=root,write-cache=on${interrupts}`],
        ]),
    ...machine.shares.flatMap(({ tag, path, readonly }) => [
      '-fsdev',
      `local,id=${tag},path=${value(path)},security_model=none,multidevs=remap${readonly ? ',readonly=on' : ''}`,
      '-device',
      `virtio-9p-pci,fsdev=${tag},mount_tag=${tag}${interrupts}`,
    ]),
  ]
}
