import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, mkdtemp, open, readdir, readFile, rm, statfs, writeFile } from 'node:fs/promises'
import { freemem, tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildOnce, whileUnused } from '../cache-folder.ts'
import { MicroVmError } from '../errors.ts'
import { findProgram, missingProgram, runHost } from '../host-process.ts'
import { imageIds, imagePath, imagesFolder, lockPath, writeRecord } from '../images/store.ts'
import { type AptHost, openApt } from './apt.ts'

/** A read-only root file system in the cache. `id` names this very build: a disk over it fits no other. */
export type Image = { readonly id: string; readonly path: string }

/** A root file system as it is built. */
export type Root = { readonly suite: string; readonly packages: readonly string[] }

/** Raised when what is built from the same root changes. */
const RECIPE = 2

const digestOf = (root: Root): string =>
  createHash('sha256')
    .update(JSON.stringify([RECIPE, root.suite, root.packages]))
    .digest('hex')
    .slice(0, 16)

/** The image of `root`, if the cache has one. */
export async function findImage(root: Root, cacheDir: string): Promise<Image | undefined> {
  const id = (await imageIds(cacheDir)).find((name) => name.startsWith(`${digestOf(root)}-`))
  return id === undefined ? undefined : { id, path: imagePath(cacheDir, id) }
}

/** The image of `root` from the cache, or a new one (one to three minutes; `onLabel` tells how far it is). */
export async function buildImage(
  root: Root,
  host: AptHost & { readonly cacheDir: string; readonly onLabel: (label: string) => void },
): Promise<Image> {
  const key = digestOf(root)
  return buildOnce<Image>({
    lock: lockPath(host.cacheDir, key),
    find: () => findImage(root, host.cacheDir),
    build: async (temporary) => {
      const path = join(temporary, 'root.ext4')
      const built = await build(root, temporary, host)
      try {
        const content = await copySparse(built.path, path)
        await chmod(path, 0o444)
        await writeRecord(temporary, {
          version: 1,
          ref: `debootstrap:${root.suite}`,
          digest: '',
          packages: [...root.packages],
          env: {},
          workdir: '',
          user: '',
          distribution: { id: 'debian', like: [], apt: true },
        })
        return join(imagesFolder(host.cacheDir), `${key}-${content.slice(0, 16)}`)
      } finally {
        await rm(built.folder, { recursive: true, force: true })
      }
    },
    ...(host.signal === undefined ? {} : { signal: host.signal }),
  })
}

/**
 * Runs in mmdebstrap, with the new root in $1: empties what a guest has no use for, and writes the disk image straight from
 * the folder. The folder is bound without what is mounted below it, or its /proc would be copied. Its /tmp is hidden and
 * never emptied: the configuration that points apt at the new root, and not at the host's own lists, lies there. Blocks of
 * 4 KiB always, so that the guest agent can grow the file system to its disk. Git is told to trust all folders: it asks who
 * owns them, and on a share that is whoever does on the host.
 */
const HOOK = `set -eu
rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*
mkdir -p "$1"/workspace "$1"/var/cache/apt/archives/partial
printf 'reve\\n' > "$1"/etc/hostname
printf '127.0.0.1 localhost\\n127.0.1.1 reve\\n::1 localhost\\n' > "$1"/etc/hosts
printf '[safe]\\n\\tdirectory = *\\n' > "$1"/etc/gitconfig
rm -f "$1"/etc/resolv.conf
: > "$1"/etc/resolv.conf
chroot "$1" dpkg-query -W > "$REVE_FOLDER/packages"
bound=$(mktemp -d)
mount --bind "$1" "$bound"
trap 'umount -R "$bound"' EXIT
mount -t tmpfs -o mode=1777 tmpfs "$bound/tmp"
size=$(du -sm "$bound" | cut -f1)
truncate -s "$((size * 5 / 4 + 128))M" "$REVE_FOLDER/root.ext4"
mke2fs -q -F -t ext4 -b 4096 -i 8192 -m 1 -J size=32 -E lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0 -d "$bound" "$REVE_FOLDER/root.ext4"`

/** Nobody reads manuals here, and each file costs at every step. */
const EXCLUDED = ['doc', 'man', 'info', 'locale', 'lintian', 'help'].map(
  (folder) => `path-exclude=/usr/share/${folder}/*`,
)

/** What mmdebstrap says, as a user would: `I: extracting archives...`. */
const phase = (line: string): string | undefined =>
  /^I: ((?:downloading|extracting|installing)[\w ]*?)(?: with apt| inside the chroot)?\.\.\./.exec(line)?.[1]

async function build(
  root: Root,
  temporary: string,
  host: AptHost & { readonly cacheDir: string; readonly onLabel: (label: string) => void },
): Promise<{ readonly folder: string; readonly path: string }> {
  const lists = join(temporary, 'apt')
  const sources = await (await openApt(lists, host)).mirrorsFor(root.suite)
  await rm(lists, { recursive: true })
  const isRoot = process.getuid?.() === 0
  const folder = await buildFolder(host.cacheDir, digestOf(root), isRoot)
  try {
    // Without root the hook runs as a user of a sub-range, who may write here and nowhere else.
    const files = ['packages', 'root.ext4'].map((name) => join(folder, name))
    for (const file of files) await writeFile(file, '')
    if (!isRoot) for (const path of [folder, ...files]) await chmod(path, path === folder ? 0o711 : 0o666)
    // As root it mounts /proc and devices into what it builds: were they left there, removing the folder would reach them.
    const mmdebstrap = findProgram('mmdebstrap', host.searchPath)
    if (mmdebstrap === undefined) throw missingProgram('mmdebstrap')
    const run = await runHost(
      isRoot ? 'unshare' : 'mmdebstrap',
      [
        ...(isRoot ? ['--mount', '--', mmdebstrap] : []),
        `--mode=${isRoot ? 'root' : 'unshare'}`,
        '--format=null',
        // Apt's own tidying up is not needed: what it would empty is thrown away.
        '--skip=cleanup/apt',
        '--variant=minbase',
        ...(root.packages.length === 0 ? [] : [`--include=${root.packages.join(',')}`]),
        ...EXCLUDED.map((option) => `--dpkgopt=${option}`),
        '--dpkgopt=force-unsafe-io',
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        `--customize-hook=${HOOK}`,
        root.suite,
        '/dev/null',
        ...sources.map(
          ({ uri, suite }) => `deb ${existsSync(KEYRING) ? `[signed-by=${KEYRING}] ` : ''}${uri} ${suite} main`,
        ),
      ],
      {
        searchPath: host.searchPath,
        env: { ...host.programEnv, TMPDIR: folder, REVE_FOLDER: folder },
        onLine: (line) => {
          const label = phase(line)
          if (label !== undefined) host.onLabel(`image ${root.suite}: ${label}`)
        },
        ...(host.signal === undefined ? {} : { signal: host.signal }),
      },
    )
    if (run.code !== 0) throw buildFailed(root, run.stderr)
    await writeFile(join(temporary, 'packages'), await readFile(join(folder, 'packages')))
    return { folder, path: join(folder, 'root.ext4') }
  } catch (error) {
    await rm(folder, { recursive: true, force: true })
    throw error
  }
}

const buildFailed = (root: Root, stderr: string): MicroVmError => {
  const unknown = [
    ...stderr.matchAll(/Unable to locate package (\S+)|Package '?(\S+?)'? has no installation candidate/g),
  ].map((match) => match[1] ?? match[2])
  if (unknown.length > 0)
    return new MicroVmError(
      'image_failed',
      `Debian ${root.suite} has no package ${unknown.join(', ')}; take it out of sandbox.lua's packages`,
    )
  const lines = stderr.split('\n').filter((line) => /^(E|W):|error/i.test(line))
  return new MicroVmError(
    'image_failed',
    `the root file system (${root.suite}) could not be built: ${(lines.length > 0 ? lines : stderr.trim().split('\n')).slice(-4).join(' ')}`,
  )
}

/** Debian's keys; without this file mmdebstrap looks for others that fit. */
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
/** Building writes a gigabyte of small files: in memory where there is plenty. */
const MEMORY_BYTES = 6 * 2 ** 30

/** A folder to build in, named for its cache and image so that what a killed build left there goes with the next one. */
async function buildFolder(cacheDir: string, key: string, isRoot: boolean): Promise<string> {
  const cache = `reve-image-${createHash('sha256').update(cacheDir).digest('hex').slice(0, 12)}-`
  // A user of a sub-range does not get into a home folder.
  const parent = (await inMemory()) ? '/dev/shm' : isRoot ? join(imagesFolder(cacheDir), 'locks') : tmpdir()
  for (const left of await readdir(parent)) {
    if (!left.startsWith(cache)) continue
    const remove = (): Promise<void> => rm(join(parent, left), { recursive: true, force: true })
    const [owner = ''] = left.slice(cache.length).split('-')
    if (owner === key || !/^[0-9a-f]{16}$/.test(owner)) await remove()
    else await whileUnused(lockPath(cacheDir, owner), remove)
  }
  return mkdtemp(join(parent, `${cache}${key}-`))
}

async function inMemory(): Promise<boolean> {
  const mounts = await readFile('/proc/mounts', 'utf8').catch(() => '')
  const options = mounts
    .split('\n')
    .map((line) => line.split(' '))
    .findLast(([, path]) => path === '/dev/shm')?.[3]
    ?.split(',')
  if (options === undefined || options.includes('noexec') || options.includes('nodev') || freemem() < MEMORY_BYTES)
    return false
  const { bavail, bsize } = await statfs('/dev/shm')
  return bavail * bsize >= MEMORY_BYTES
}

const COPY_BYTES = 64 * 1024

/** Copies a file, leaves out what is all zeroes, and gives the digest of the rest. */
async function copySparse(from: string, to: string): Promise<string> {
  const digest = createHash('sha256')
  const zeroes = Buffer.alloc(COPY_BYTES)
  const buffer = Buffer.alloc(COPY_BYTES)
  await using source = await open(from, 'r')
  await using target = await open(to, 'wx', 0o600)
  const { size } = await source.stat()
  await target.truncate(size)
  for (let at = 0; at < size; at += COPY_BYTES) {
    const { bytesRead } = await source.read(buffer, 0, COPY_BYTES, at)
    const bytes = buffer.subarray(0, bytesRead)
    if (bytes.equals(zeroes.subarray(0, bytesRead))) continue
    digest.update(`${at} `).update(bytes)
    await target.write(bytes, 0, bytesRead, at)
  }
  await target.sync()
  return digest.digest('hex')
}
