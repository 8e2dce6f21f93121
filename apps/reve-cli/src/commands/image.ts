import { resolve } from 'node:path'
import { sanitiseLine } from '@reve/base'
import { type CachedImage, type ImageSpec, listImages, prepareImage, removeImage } from '@reve/sandbox-microvm'
import type { ImageCommand } from '../arguments.ts'
import { agentHere, type Context } from '../context.ts'
import { exitCode } from '../exit-codes.ts'
import { surroundings, vmHost } from '../surroundings.ts'
import { count, size, table } from '../table.ts'
import { vmProgress } from '../vm-progress.ts'

type Action<Name extends ImageCommand['action']> = Extract<ImageCommand, { readonly action: Name }>

/** `reve image` */
export function image(context: Context, command: ImageCommand): Promise<number> {
  switch (command.action) {
    case 'ls':
      return list(context, command)
    case 'pull':
      return make(context, { ref: here(context, command.ref), packages: [] }, { json: command.json, refresh: true })
    case 'build':
      return build(context, command)
    case 'rm':
      return removeAll(context, command)
    default:
      return command satisfies never
  }
}

async function list({ output, env }: Context, { json }: Action<'ls'>): Promise<number> {
  const images = await listImages(surroundings(env).cacheDir)
  if (json) output.result(JSON.stringify(images))
  else if (images.length === 0) output.note('there are no images yet; the first start of an agent makes one')
  else output.result(table(images.map(row)))
  return exitCode.done
}

function row({ id, refs, packages, bytes, lastUsedMs, users }: CachedImage): readonly string[] {
  const when = `${new Date(lastUsedMs).toISOString().slice(0, 16).replace('T', ' ')}Z`
  const names = refs.length === 0 ? '(built by an earlier version)' : refs.join(', ')
  const more = packages.length === 0 ? '' : ` with ${packages.join(', ')}`
  const used = users.length === 0 ? '' : count(users.length, 'disk')
  return [id.slice(0, 12), size(bytes).padStart(9), when, used, sanitiseLine(`${names}${more}`, 120)]
}

async function build(context: Context, { ref, packages, json }: Action<'build'>): Promise<number> {
  if (ref !== undefined) return make(context, { ref: here(context, ref), packages }, { json })
  await using agent = await agentHere(context)
  const { policy } = agent.info
  return make(context, { ref: policy.image, packages: policy.provision ? policy.packages : [] }, { json })
}

async function make(
  { output, env, signal }: Context,
  spec: ImageSpec,
  { json, refresh }: { readonly json: boolean; readonly refresh?: boolean },
): Promise<number> {
  const host = vmHost(surroundings(env), vmProgress(output))
  const { id, path } = await prepareImage(spec, host, { signal, ...(refresh === undefined ? {} : { refresh }) })
  output.result(json ? JSON.stringify({ id, path }) : `${id.slice(0, 12)}  ${sanitiseLine(spec.ref)}`)
  return exitCode.done
}

async function removeAll({ output, env }: Context, { names, force, json }: Action<'rm'>): Promise<number> {
  const { cacheDir } = surroundings(env)
  const removed: CachedImage[] = []
  for (const name of names) removed.push(...(await removeImage(cacheDir, name, { force })))
  if (json) output.result(JSON.stringify(removed.map(({ id, bytes }) => ({ id, bytes }))))
  else
    output.result(
      `removed ${count(removed.length, 'image')}, ${size(removed.reduce((sum, { bytes }) => sum + bytes, 0))}`,
    )
  return exitCode.done
}

/** A path on the command line may be relative; in a sandbox.lua it may not. */
function here({ folder }: Context, ref: string): string {
  const [, scheme, path] = /^(dir|tar|oci|oci-archive|docker-archive):(?!\/)(.+)$/s.exec(ref) ?? []
  return path === undefined ? ref : `${scheme}:${resolve(folder, path)}`
}
