import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { buildOnce } from '../src/cache-folder.ts'
import { DEFAULT_SEARCH_PATH, runHost, spawnHost } from '../src/host-process.ts'
import { openApt } from '../src/qemu/apt.ts'
import { writeCpio } from '../src/qemu/cpio.ts'
import { collectModules } from '../src/qemu/modules.ts'

/** Raised when what is built here changes. */
const RECIPE = 1

/** The cloud kernel boots fastest; it has ext4 built in, and everything virtual as modules. */
const KERNEL = 'linux-image-cloud-amd64'
const MODULES = ['virtio_pci', 'virtio_blk', 'virtio_net', 'kvm-amd']

/** What the machine around boots, besides its disks; and a static busybox, which is also the guest's guest. */
export type Boot = { readonly kernel: string; readonly initrd: string; readonly busybox: string }

const INIT = `#!/busybox sh
/busybox mount -t devtmpfs none /dev
while read -r module; do /busybox insmod "/modules/$module" || echo "cannot load $module"; done < /modules/order
/busybox mount -t proc none /proc
/busybox mkdir -p /root
/busybox mount -t ext4 /dev/vda /root || echo 'no root'
/busybox mount -t ext4 /dev/vdb /root/srv || echo 'no payload'
/busybox umount /proc
/busybox mount --move /dev /root/dev
exec /busybox switch_root /root /srv/init
`

/** Kernel, initial file system and busybox from this machine's own Debian mirror; once, then from the cache. */
export async function prepareBoot(cacheDir: string): Promise<Boot> {
  const folder = join(cacheDir, 'nested', `boot-r${RECIPE}`)
  const boot = {
    kernel: join(folder, 'vmlinuz'),
    initrd: join(folder, 'initrd.cpio'),
    busybox: join(folder, 'busybox'),
  }
  return buildOnce<Boot>({
    lock: join(cacheDir, 'nested', 'lock'),
    find: async () => ((await readdir(folder).catch(() => [])).length > 0 ? boot : undefined),
    build: async (temporary) => {
      await build(temporary)
      return folder
    },
  })
}

async function build(temporary: string): Promise<void> {
  const lists = join(temporary, 'apt')
  const apt = await openApt(lists, { searchPath: DEFAULT_SEARCH_PATH, programEnv: {} })
  const meta = await apt.run('apt-cache', ['depends', KERNEL])
  const name = /Depends: (linux-image-[\w.+-]+)/.exec(meta.stdout.toString())?.[1]
  if (name === undefined) throw new Error(`apt knows no package ${KERNEL}: ${meta.stderr}`)
  const root = join(temporary, 'root')
  await mkdir(root)
  const download = await apt.run('apt-get', ['download', name, 'busybox-static'], temporary)
  if (download.code !== 0) throw new Error(`downloading ${name} and busybox-static: ${download.stderr}`)
  for (const file of (await readdir(temporary)).filter((entry) => entry.endsWith('.deb'))) {
    await mustRun('dpkg-deb', ['-x', join(temporary, file), root])
    await rm(join(temporary, file))
  }
  const unpack = async (bytes: Uint8Array): Promise<Uint8Array> =>
    (await runHost('xz', ['-dc', '--single-stream'], { input: bytes })).stdout
  const release = name.slice('linux-image-'.length)
  const libraries = (await readdir(root)).includes('lib') ? join(root, 'lib') : join(root, 'usr', 'lib')
  const modules = await collectModules(join(libraries, 'modules', release), MODULES, unpack)
  const busybox = await readFile(await firstOf([join(root, 'bin', 'busybox'), join(root, 'usr', 'bin', 'busybox')]))
  await writeFile(join(temporary, 'vmlinuz'), await readFile(join(root, 'boot', `vmlinuz-${release}`)))
  await writeFile(join(temporary, 'busybox'), busybox, { mode: 0o755 })
  await writeFile(
    join(temporary, 'initrd.cpio'),
    writeCpio([
      ...['dev', 'proc', 'root', 'modules'].map((path) => ({ path })),
      { path: 'modules/order', data: Buffer.from(modules.map(({ file }) => `${file}\n`).join('')), mode: 0o644 },
      ...modules.map(({ file, data }) => ({ path: `modules/${file}`, data, mode: 0o644 })),
      { path: 'busybox', data: busybox },
      { path: 'init', data: Buffer.from(INIT) },
    ]),
  )
  await rm(root, { recursive: true })
  await rm(lists, { recursive: true })
}

async function firstOf(paths: readonly string[]): Promise<string> {
  for (const path of paths)
    if (
      await readFile(path).then(
        () => true,
        () => false,
      )
    )
      return path
  throw new Error(`none of these is there: ${paths.join(', ')}`)
}

/** Runs a program of the host and fails when it does. */
export async function mustRun(program: Parameters<typeof runHost>[0], args: readonly string[]): Promise<void> {
  const run = await runHost(program, args)
  if (run.code !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${run.code}: ${run.stderr}`)
}

/** The disks, and where the console goes. */
export type Machine = {
  readonly boot: Boot
  readonly root: string
  readonly payload: string
  readonly console: string
  readonly report: string
  /** More arguments for QEMU, for somebody who looks into it by hand. */
  readonly more?: readonly string[]
}

/** Boots it and resolves when it has powered itself off. EPYC: a processor whose emulation includes AMD's virtualisation. */
export async function runMachine(machine: Machine, signal: AbortSignal): Promise<void> {
  const { boot } = machine
  const child = spawnHost(
    'qemu-system-x86_64',
    [
      ...['-M', 'q35', '-accel', 'tcg,thread=multi,tb-size=1024', '-cpu', 'EPYC', '-smp', '2', '-m', '4G'],
      ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
      ...['-kernel', boot.kernel, '-initrd', boot.initrd],
      ...['-append', 'console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on tsc=reliable'],
      ...['-drive', `file=${machine.root},if=none,id=root,format=qcow2,cache=unsafe`],
      ...['-device', 'virtio-blk-pci,drive=root'],
      ...['-drive', `file=${machine.payload},if=none,id=payload,format=raw,cache=unsafe,snapshot=on`],
      ...['-device', 'virtio-blk-pci,drive=payload'],
      // A card that leads nowhere: without a way out the machine's guests would get no network of either family.
      ...['-netdev', 'user,id=net,restrict=on', '-device', 'virtio-net-pci,netdev=net'],
      ...['-serial', `file:${machine.console}`, '-serial', `file:${machine.report}`],
      ...(machine.more ?? []),
    ],
    // It warns of each feature of that processor that it does not emulate.
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-4000)))
  const end = (): void => void child.kill('SIGKILL')
  signal.addEventListener('abort', end, { once: true })
  process.once('exit', end)
  try {
    await new Promise<void>((resolve, reject) => {
      child.on('error', reject)
      child.on('exit', (code) =>
        code === 0 || signal.aborted ? resolve() : reject(new Error(`QEMU ended with ${code}: ${said}`)),
      )
    })
  } finally {
    signal.removeEventListener('abort', end)
    process.removeListener('exit', end)
  }
}
