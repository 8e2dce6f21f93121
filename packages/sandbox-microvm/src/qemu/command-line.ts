import type { Accelerator } from '../spec.ts'

/** A guest's memory in a file, and what becomes of what the guest writes. */
export type MemoryFile = {
  readonly path: string
  /**
   * `save`: it goes into the file, of a machine that boots. Otherwise the file is what a saved machine had: `private` opens it
   * for writing, as older versions of QEMU do, so it is a copy of this VM's own; `shared` opens it for reading only. Both
   * write what the guest writes nowhere.
   */
  readonly use: 'save' | 'private' | 'shared'
}

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
  /** No disk: a boot that only tries the machine. A placeholder: one whose memory is saved before it has a disk. */
  readonly disk?: { readonly overlay: string; readonly base: string } | 'placeholder'
  /** The guest's memory as a file, instead of QEMU's own. */
  readonly memory?: MemoryFile
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
  ].join(' ')

/** As large as a disk has to be to be one; nobody reads it. */
const PLACEHOLDER_BYTES = 1024 * 1024

/** Options of QEMU are lists with commas; a comma in a value is doubled. */
const value = (text: string): string => text.replaceAll(',', ',,')

/**
 * QEMU's arguments. There is no network card, no display, no USB, no default device and no configuration file; QEMU may
 * start no program and raise no privilege. The disk's backing file is named here, so what stands in the disk's own header
 * is not followed.
 */
export function qemuArguments(machine: Machine): readonly string[] {
  const { accelerator, disk, memory } = machine
  const node = (options: object): readonly string[] => ['-blockdev', JSON.stringify(options)]
  // Emulated by several threads, QEMU 7.2 now and then dies of an assertion on a device's table of message interrupts while
  // the guest sets it up: no table, no such death.
  const interrupts = accelerator === 'tcg' ? ',vectors=0' : ''
  return [
    ...['-name', value(machine.name)],
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...(memory === undefined ? [] : ['-object', memoryObject(memory, machine.memoryMiB)]),
    ...[
      '-machine',
      `q35,usb=off,sata=off,smbus=off,vmport=off,hpet=off${memory === undefined ? '' : ',memory-backend=ram'}`,
    ],
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
          ...(disk === 'placeholder'
            ? node({ 'node-name': 'root', driver: 'null-co', size: PLACEHOLDER_BYTES, 'read-zeroes': true })
            : [
                ...node({ 'node-name': 'base-file', driver: 'file', filename: disk.base, 'read-only': true }),
                ...node({ 'node-name': 'base', driver: 'raw', file: 'base-file', 'read-only': true }),
                ...node({ 'node-name': 'root-file', driver: 'file', filename: disk.overlay }),
                ...node({ 'node-name': 'root', driver: 'qcow2', file: 'root-file', backing: 'base' }),
              ]),
          ...['-device', `virtio-blk-pci,drive=root,write-cache=on${interrupts}`],
        ]),
    ...machine.shares.flatMap(({ tag, path, readonly }) => [
      '-fsdev',
      `local,id=${tag},path=${value(path)},security_model=none,multidevs=remap${readonly ? ',readonly=on' : ''}`,
      '-device',
      `virtio-9p-pci,fsdev=${tag},mount_tag=${tag}${interrupts}`,
    ]),
    ...(memory === undefined || memory.use === 'save' ? [] : ['-incoming', 'defer']),
  ]
}

const memoryObject = ({ path, use }: MemoryFile, memoryMiB: number): string =>
  [
    `memory-backend-file,id=ram,size=${memoryMiB}M,mem-path=${value(path)},share=${use === 'save' ? 'on' : 'off'}`,
    // The guest's memory is no read-only memory for that: `rom` says so.
    ...(use === 'shared' ? ['readonly=on,rom=off'] : []),
  ].join(',')
