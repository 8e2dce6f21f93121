import { mkdir, mkdtemp } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Tool, ToolContext } from '@reve/harness'
import type { JsonObject } from '@reve/providers/model'
import { createMicroVm, type MicroVm, probeBackends } from '@reve/sandbox-microvm'

/** The cache that `npm start` fills: an image is built once a machine. */
const host = {
  cacheDir: join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'reve'),
  runtimeDir: join('/tmp', `reve-${process.getuid?.() ?? 0}`),
}

/** Whether a VM boots here; when none does it is said, and what runs in one is not tested. */
export async function canBoot(): Promise<boolean> {
  const [backend] = (await probeBackends(host)).filter(({ ok }) => ok)
  if (backend === undefined) process.stderr.write('no microVM boots here: the tools that run in one are not tested\n')
  return backend !== undefined
}

/** A running VM and its `workspace/` on the host. */
export type GuestVm = { readonly vm: MicroVm; readonly workspace: string }

export async function startVm(packages: readonly string[] = ['git', 'python3']): Promise<GuestVm> {
  const root = await mkdtemp(join(tmpdir(), 'guest-vm-'))
  const workspace = join(root, 'workspace')
  await mkdir(workspace)
  const vm = createMicroVm(
    {
      name: 'guest-vm',
      stateDir: join(root, 'vm'),
      image: { ref: 'debian:trixie-slim', packages },
      cpus: 2,
      memoryMiB: 512,
      diskMiB: 16_384,
      mounts: [{ host: workspace, guest: '/workspace' }],
      workdir: '/workspace',
      env: {},
      egress: { kind: 'none' },
      bootstrap: [],
      idleStopMs: 60_000,
    },
    host,
  )
  await vm.start()
  return { vm, workspace }
}

/** What a tool is called with, for a call of its own. */
export const toolContext = (given: Partial<ToolContext> = {}): ToolContext => ({
  signal: new AbortController().signal,
  lane: 'main',
  runId: 'run_1',
  toolCallId: 'call_1',
  idempotencyKey: 'e_1',
  progress: () => undefined,
  subagent: () => Promise.reject(new Error('there are no sub-agents here')),
  ...given,
})

/** A tool's result as text; its parts as JSON when they are not just a text. */
export async function callTool(
  tool: Tool,
  args: JsonObject,
  context: Partial<ToolContext> = {},
): Promise<{ readonly text: string; readonly isError: boolean }> {
  const { content, isError = false } = await tool.run(args, toolContext(context))
  return { text: typeof content === 'string' ? content : JSON.stringify(content), isError }
}
