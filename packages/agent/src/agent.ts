import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  isReveError,
  messageOf,
  openConfined,
  redactSecrets,
  type ReveError,
  unfinishedSecret,
  writeFileAtomic,
} from '@reve/base'
import { type Discovery, fetchThrough, loadModels, type ModelCatalogue, proxiesOf } from '@reve/providers'
import { createScriptedModel, type JsonObject, type Model, type Thinking } from '@reve/providers/model'
import { createHarness, type HarnessOptions, type Redact, type Tool } from '@reve/harness'
import type { LuaRuntime } from '@reve/lua-runtime'
import {
  createMicroVm,
  type EgressEvent,
  type GuestNetwork,
  type MicroVm,
  type MicroVmHost,
  policyNetwork,
  policySecrets,
  policyToSpec,
  type SandboxPolicy,
} from '@reve/sandbox-microvm'
import { restateName, type SessionLog } from '@reve/session-log'
import { checkpointed } from './checkpointed.ts'
import {
  type Checkpoints,
  checkpointAt,
  noteCheckpoint,
  type Restored,
  tryCheckpoints,
  wasRestoring,
} from './checkpoints.ts'
import { loadDefinition, type Definition } from './definition.ts'
import { guestTools } from './guest-tools.ts'
import { liveDefinition } from './live-definition.ts'
import { channelNames, channelSecrets, configuredChannels } from './channels/configure.ts'
import { sessionConversation } from './channels/conversation.ts'
import { type Channels, type ChannelsOptions, startChannels } from './channels/runner.ts'
import { serviceEffects } from './effects.ts'
import { AgentError } from './errors.ts'
import { sessionBeats } from './heartbeats/beat.ts'
import { type HeartbeatOptions, type Heartbeats, startHeartbeats } from './heartbeats/runner.ts'
import { luaChannels } from './lua-channels.ts'
import { type AgentCommand, agentCommands, type CommandResult, runCommand } from './lua-commands.ts'
import { luaHooks } from './lua-hooks.ts'
import { luaHost } from './lua-host.ts'
import { luaTool } from './lua-tools.ts'
import { refusing } from './refusal.ts'
import { createMcpTools, type McpStatus } from './mcp-tools.ts'
import { mcpNames, mcpSecrets } from './mcp/setting.ts'
import { createNetworkNotes } from './network-notes.ts'
import { continuedSession, newSession, newestSession, type OpenSession } from './sessions.ts'
import { findSkills, type Skills } from './skills.ts'
import { spill } from './spill.ts'
import { type PromptParts, systemPrompt } from './system-prompt.ts'
import { vmName } from './vm-name.ts'

/** What the surroundings give to an agent; the library reads none of it by itself. */
export type AgentHost = {
  /** Looks a variable of the user's environment up: keys named in `models.yml`, secrets named in `sandbox.lua`. */
  readonly env: (name: string) => string | undefined
  /** Folders and observer of the microVM. */
  readonly vm: MicroVmHost
  /** What happens at the edge of the VM's network, at a bounded rate. */
  readonly onEgress?: (event: EgressEvent) => void
  /** What a person should know and no run fails by, a sentence each: an MCP server that is down, a rewind that was undone. */
  readonly onNotice?: (notice: string) => void
  /** `ctx.log` and `print` of a script; `source` is what it is: a tool, `/command`, `channel <name>`, a hook's `file:line`. */
  readonly onLog?: (source: string, text: string) => void
  /** Milliseconds since the epoch (default: the system's clock). */
  readonly now?: () => number
}

export type AgentInfo = {
  readonly root: string
  /** `provider/model`, or undefined when `agent.lua` names none. */
  readonly model: string | undefined
  readonly thinking: string | number | undefined
  readonly policy: SandboxPolicy
  /** Lua tools, by name. */
  readonly tools: readonly { readonly name: string; readonly description: string }[]
  /** Names of the channels that `agent.lua` turns on, and of those of `channels/*.lua`. */
  readonly channels: readonly string[]
  /** Names of the MCP servers that `agent.lua` names. */
  readonly mcp: readonly string[]
}

/** An opened session: the harness, and where it is stored. Close it to release the session's lock. */
export type AgentSession = OpenSession &
  AsyncDisposable & {
    readonly model: Model
    /**
     * Goes back to an entry (null: the beginning): what is said next branches off there, and the files of `workspace/` become what
     * they were then. Nothing is lost: the present files are a checkpoint too, and the entries stay in the log.
     *
     * @param options.files false leaves the files as they are.
     * @throws HarnessError `lane_busy`, `unknown_entry`; AgentError `no_checkpoint` before anything is changed.
     */
    readonly rewind: (
      entryId: string | null,
      options?: { readonly files?: boolean; readonly lane?: string },
    ) => Promise<Rewound>
    /** Why the last run was stopped when no microVM can be had here: without one an agent does not work on. */
    readonly refusal: () => ReveError | undefined
  }

/** What a rewind did; `files` is undefined when they were left, or had never changed. */
export type Rewound = { readonly entryId: string | null; readonly files: Restored | undefined }

export interface Agent extends AsyncDisposable {
  readonly info: AgentInfo
  /**
   * Reads what changed in the agent's files since: for the runs, sessions and calls that begin from now on. A mistake in them
   * changes nothing.
   *
   * @returns what the user should know, a sentence each.
   * @throws AgentError `not_an_agent`, `io`.
   */
  refresh(): Promise<readonly string[]>
  /** How it stands with the MCP servers since the last run; each run asks them by itself. */
  mcpServers(): readonly McpStatus[]
  /**
   * Asks the MCP servers for their tools now.
   *
   * @returns how it stands with them then.
   */
  askMcpServers(options?: { readonly signal?: AbortSignal }): Promise<readonly McpStatus[]>
  /** The skills below `workspace/skills`, as they are now; a run reads them by itself. */
  skills(): Promise<Skills>
  /** Runs the tasks of `workspace/HEARTBEAT.yml` on a session that was recovered, until they are closed (before the session). */
  startHeartbeats(session: AgentSession, options?: Pick<HeartbeatOptions, 'onEvent'>): Heartbeats
  /**
   * Lets others reach a session that was recovered over the channels of `agent.lua`, until they are closed (before the session).
   *
   * @throws ChannelError `locked`, `bad_channel`, `foreign_file`, `io`.
   */
  startChannels(
    session: AgentSession,
    options?: Pick<ChannelsOptions, 'onEvent'> & { readonly onListening?: (port: number) => void },
  ): Channels
  /** The agent's microVM; it boots at its first use. */
  readonly vm: MicroVm
  /**
   * Opens a session: a new one, or the newest of the folder.
   *
   * @throws AgentError `no_model` when the model cannot be used, `no_session` when there is none to continue.
   * @throws SessionLogError when the file is locked by another process (naming its pid) or corrupt.
   */
  openSession(options: {
    /** A file: that very session. */
    readonly session: 'new' | 'newest' | { readonly file: string }
    /** `provider/model` instead of the one in `agent.lua`; null: none is asked, for who only rewinds. */
    readonly model?: string | null
    readonly maxTurns?: number
    /** Instead of the one in `agent.lua`. */
    readonly thinking?: Thinking
  }): Promise<AgentSession>
  /**
   * Checks `models.yml` and whether the agent's model can be used: it is listed, and its key is set. Asks no provider.
   *
   * @throws AgentError `no_model`; ModelsError and YamlError as `loadModels` of `@reve/providers`.
   */
  checkModel(): Promise<void>
  /**
   * What models the providers of `models.yml` offer, for completion: asked once a day, kept in `.reve/model-catalogue.json`. A
   * model has to be listed in `models.yml` to be used.
   *
   * @throws as `checkModel`.
   */
  discoverModels(options?: { readonly signal?: AbortSignal }): Promise<Discovery>
  /** What people can type, `/name args`, by the agent's own Lua. */
  commands(): readonly AgentCommand[]
  /**
   * Runs a command with the text after its name.
   *
   * @throws AgentError `unknown_command`; LuaError of `@reve/lua-runtime` with the place of what went wrong.
   */
  runCommand(
    name: string,
    args: string,
    options?: { readonly signal?: AbortSignal; readonly onProgress?: (text: string) => void },
  ): Promise<CommandResult>
  /** Runs one Lua tool as the model would; the name and arguments are checked before a VM boots. */
  runTool(
    name: string,
    args: JsonObject,
    options?: { readonly signal?: AbortSignal; readonly onProgress?: (text: string) => void },
  ): Promise<string>
  close(): Promise<void>
}

/** It fails every request, and says that it has no turn. */
const noModel = createScriptedModel({ id: 'none/none', turns: [] })

/** Largest file of the agent's own notes that is read into the system prompt. */
const noteBytes = 1 << 20

/**
 * Opens the agent that lives in `folder`: checks all of its files, starts nothing yet.
 *
 * @throws AgentError `not_an_agent`, `bad_config` with every problem as `file:line: message`.
 */
export async function openAgent(folder: string, host: AgentHost): Promise<Agent> {
  const definition = await loadDefinition(folder)
  try {
    return await agentOf(definition, host)
  } catch (error) {
    await definition.lua.close()
    throw error
  }
}

async function agentOf(definition: Definition, host: AgentHost): Promise<Agent> {
  const { root, policy } = definition
  const live = await liveDefinition(definition)
  const stateDir = join(root, '.reve')
  const workspace = join(root, 'workspace')
  await ensureWorkspace(workspace)
  const spec = policyToSpec(policy, { name: vmName(root), stateDir: join(stateDir, 'vm'), workspace })
  let network: GuestNetwork | undefined
  const notes = createNetworkNotes(host.now)
  const onEvent = (event: EgressEvent): void => {
    notes.add(event)
    host.onEgress?.(event)
  }
  const vm = createMicroVm(spec, host.vm, {
    backend: policy.backend,
    secrets: policySecrets(policy, host.env),
    network: async () => {
      network = await policyNetwork(policy, { secret: host.env, onEvent })
      return network
    },
  })
  const effects = serviceEffects(host.now)
  const proxies = proxiesOf(host.env)
  const mcp = createMcpTools({
    setting: () => live.current().mcp,
    env: host.env,
    after: effects.after,
    shorten: (text, signal) => spill(vm, text, signal),
    fetchFor: (url) => fetchThrough(url, { proxies }),
  })
  const askMcpServers = async (signal?: AbortSignal): Promise<void> => {
    for (const notice of await mcp.refresh(signal === undefined ? {} : { signal })) host.onNotice?.(notice)
  }
  const sessionsDir = join(stateDir, 'sessions')
  let opened: Promise<Checkpoints | { readonly reason: string }> | undefined
  const checkpoints = async (): Promise<Checkpoints | { readonly reason: string }> => {
    opened ??= tryCheckpoints(join(stateDir, 'checkpoints'), workspace)
    const found = await opened
    // Who has them now may be gone the next time.
    if ('reason' in found) opened = undefined
    return found
  }

  const logOf = (source: string) => (text: string) => host.onLog?.(source, text)
  /** What a script reaches, and where its words go. */
  const scriptHost = (source: string, progress?: (text: string) => void) =>
    luaHost(vm, spec.workdir, { log: logOf(source), ...(progress && { progress }) })
  const channelsNow = (): readonly string[] => {
    const { channels, lua } = live.current()
    return [...channelNames(channels), ...lua.program.channels.map(({ name }) => name)]
  }

  /** Files that are half of one state and half of another are nothing to begin with. */
  const undoCutRestore = async (): Promise<void> => {
    if (opened !== undefined || !(await wasRestoring(join(stateDir, 'checkpoints')))) return
    const found = await checkpoints()
    if ('reason' in found) host.onNotice?.(`a rewind of workspace/ was cut off, and is not undone yet: ${found.reason}`)
    else host.onNotice?.('a rewind of workspace/ was cut off; the files are again what they were before it')
  }

  const tools = (): readonly Tool[] => {
    const builtins = guestTools(vm, { network: notes })
    const declared = live
      .current()
      .lua.program.tools.map((tool) => luaTool(live, tool, vm, spec.workdir, notes, logOf(tool.name)))
    const replaced = new Set(declared.map(({ name }) => name))
    return [...builtins.filter(({ name }) => !replaced.has(name)), ...declared]
  }

  const modelOf = async (env: AgentHost['env'], reference = live.current().model): Promise<Model> =>
    resolveModel(await models(root, env, host.env), reference)

  const sessionLog = (session: Parameters<Agent['openSession']>[0]['session']): Promise<SessionLog> => {
    if (typeof session === 'object') return continuedSession(session.file, host.now)
    return session === 'new' ? newSession(sessionsDir, host.now) : newestSession(sessionsDir, host.now)
  }

  const openSession: Agent['openSession'] = async (options) => {
    const { env, read } = remembering(host.env)
    const model = options.model === null ? noModel : await modelOf(env, options.model)
    const log = await sessionLog(options.session)
    await undoCutRestore()
    const thinking = options.thinking ?? live.current().thinking
    let refusal: ReveError | undefined
    const session = sessionOf(log, model, () => refusal, checkpoints, {
      log,
      model,
      tools: () => {
        const own = tools()
        const guarded = own.map((tool) =>
          refusing(checkpointed(tool, log, checkpoints), async (error) => {
            refusal = error
            await session.harness.abort()
          }),
        )
        // Those of servers need no VM, and change no file of the workspace.
        return [...guarded, ...mcp.tools(new Set(own.map(({ name }) => name)))]
      },
      system: async () => {
        await askMcpServers()
        return prompt(live.current(), spec.workdir, { servers: mcp.instructions(), channels: channelsNow() })
      },
      hooks: () => luaHooks(live, scriptHost),
      redact: redactor([
        ...read(),
        ...policy.secrets.map(({ source }) => host.env(source) ?? ''),
        ...channelSecrets(live.current().channels, host.env),
        ...mcpSecrets(live.current().mcp, host.env),
      ]),
      ...(definition.budget === undefined ? {} : { budget: definition.budget }),
      ...(thinking === undefined ? {} : { thinking }),
      ...(options.maxTurns === undefined ? {} : { limits: { maxTurns: options.maxTurns } }),
    })
    return session
  }

  const close = async (): Promise<void> => {
    try {
      await live.close()
      await mcp.close()
      const checkpointing = await opened
      if (checkpointing !== undefined && !('reason' in checkpointing)) await checkpointing[Symbol.asyncDispose]()
    } finally {
      await vm.stop()
      await network?.close()
    }
  }

  return {
    get info() {
      const { model, thinking, lua, mcp: servers } = live.current()
      const tools = lua.program.tools.map(({ name, description }) => ({ name, description }))
      return { root, model, thinking, policy, tools, channels: channelsNow(), mcp: mcpNames(servers) }
    },
    refresh: async () => {
      const before = JSON.stringify(live.current().policy)
      const refreshed = await live.refresh()
      if (refreshed.type === 'kept')
        return [`the agent's files are as they were, until this is mended:\n${refreshed.problem}`]
      if (refreshed.type === 'same' || JSON.stringify(live.current().policy) === before) return []
      return ['sandbox.lua has changed; it counts from the next start of reve on']
    },
    startHeartbeats: (session, options = {}) =>
      startHeartbeats({
        workspace,
        stateFile: join(stateDir, 'heartbeats.json'),
        ...sessionBeats(session),
        ...{ now: effects.now, after: effects.after, newId: () => effects.newId('hb_') },
        ...options,
      }),
    startChannels: (session, { onListening, ...options } = {}) => {
      const own = ownLua(root)
      const started = startChannels({
        file: join(stateDir, 'channels.db'),
        channels: [
          ...configuredChannels(live.current().channels, {
            root,
            env: host.env,
            effects,
            ...(onListening && { onListening }),
          }),
          ...luaChannels(
            live.current().lua.program.channels,
            own.lua,
            (name) => scriptHost(`channel ${name}`),
            effects,
          ),
        ],
        conversation: sessionConversation(session, effects),
        ...{ now: effects.now, after: effects.after, newId: () => effects.newId('m_') },
        ...options,
      })
      const end = async (): Promise<void> => {
        await started.close()
        await own.close()
      }
      return { close: end, [Symbol.asyncDispose]: end }
    },
    mcpServers: () => mcp.status(),
    askMcpServers: async ({ signal } = {}) => {
      await askMcpServers(signal)
      return mcp.status()
    },
    skills: async () => findSkills(await openConfined(workspace)),
    vm,
    checkModel: async () => {
      await modelOf(host.env)
    },
    discoverModels: async ({ signal } = {}) => {
      const catalogue = await models(root, host.env, host.env)
      const file = join(stateDir, 'model-catalogue.json')
      const cache = {
        read: async () => readFile(file, 'utf8').catch(() => undefined),
        write: async (text: string) => {
          await mkdir(stateDir, { recursive: true, mode: 0o700 })
          await writeFileAtomic(file, text)
        },
      }
      return catalogue.discover({ cache, ...(signal && { signal }) })
    },
    openSession,
    commands: () => agentCommands(live),
    runCommand: async (name, args, { signal, onProgress } = {}) => {
      await live.refresh()
      return runCommand(live, name, args, scriptHost(`/${name}`, onProgress), signal ? { signal } : {})
    },
    runTool: async (name, args, { signal, onProgress } = {}) => {
      await live.refresh()
      const { program } = live.current().lua
      if (!program.tools.some((tool) => tool.name === name)) {
        const known = program.tools.map((tool) => tool.name).join(', ') || 'none'
        throw new AgentError('unknown_tool', `this agent has no Lua tool "${name}" (it has: ${known})`)
      }
      return live.withLua((lua) => lua.call(name, args, scriptHost(name, onProgress), signal ? { signal } : {}))
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** A Lua state of the agent's files that is loaded at its first use. */
function ownLua(root: string): { readonly lua: () => Promise<LuaRuntime>; readonly close: () => Promise<void> } {
  let loading: Promise<LuaRuntime> | undefined
  return {
    lua: () => {
      loading ??= loadDefinition(root).then(({ lua }) => lua)
      return loading
    },
    close: async () => {
      await loading?.then(
        (lua) => lua.close(),
        () => undefined,
      )
    },
  }
}

/** Git keeps no empty folder, so that a cloned agent comes without its `workspace/`. */
async function ensureWorkspace(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true })
  } catch (cause) {
    throw new AgentError('io', `${path} cannot be used as the agent's working folder: ${messageOf(cause)}`, { cause })
  }
}

function sessionOf(
  log: SessionLog,
  model: Model,
  refusal: AgentSession['refusal'],
  checkpoints: () => Promise<Checkpoints | { readonly reason: string }>,
  options: HarnessOptions,
): AgentSession {
  const harness = createHarness(options)
  return {
    log,
    harness,
    model,
    refusal,
    rewind: async (entryId, { files = true, lane = 'main' } = {}) => {
      const { state } = harness.status(lane)
      // The refusals of the conversation come before anything happens to the files.
      if (state !== 'idle' || (entryId !== null && log.entry(entryId) === undefined)) {
        await harness.navigate(entryId, { lane })
      }
      const tree = checkpointAt(log, log.path(entryId))
      let restored: Restored | undefined
      if (files && tree !== undefined) {
        const found = await checkpoints()
        if ('reason' in found)
          throw new AgentError('no_checkpoint', `the files cannot be brought back: ${found.reason}`)
        restored = await found.restore(tree)
        await noteCheckpoint(log, lane, log.leaf(lane), restored.before)
      }
      await harness.navigate(entryId, { lane })
      if (restored !== undefined && tree !== undefined) await noteCheckpoint(log, lane, entryId, tree)
      return { entryId, files: restored }
    },
    [Symbol.asyncDispose]: async () => {
      await harness.close()
      try {
        await restateName(log)
      } finally {
        await log.close()
      }
    },
  }
}

/** @param surroundings the user's environment, of which nothing is a key: a proxy's name may stand in any text. */
async function models(root: string, env: AgentHost['env'], surroundings: AgentHost['env']): Promise<ModelCatalogue> {
  const file = join(root, 'models.yml')
  const source = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new AgentError('no_model', `${file} cannot be read (${messageOf(cause)}); "reve init" writes one`, { cause })
  })
  const confined = await openConfined(root)
  return loadModels(source, {
    file: 'models.yml',
    env,
    readFile: (path) => confined.readText(path, { maxBytes: noteBytes }),
    transport: { proxies: proxiesOf(surroundings) },
  })
}

function resolveModel(catalogue: ModelCatalogue, reference: string | undefined): Model {
  if (reference === undefined) {
    throw new AgentError(
      'no_model',
      'agent.lua names no model: set `model = "provider/model"` from models.yml, or use --model',
    )
  }
  return catalogue.resolve(reference)
}

/** An environment that remembers the values it gave out: what a model's provider read are its keys. */
function remembering(env: AgentHost['env']): {
  readonly env: AgentHost['env']
  readonly read: () => readonly string[]
} {
  const values = new Set<string>()
  return {
    env: (name) => {
      const value = env(name)
      if (value !== undefined) values.add(value)
      return value
    },
    read: () => [...values],
  }
}

/** Takes values that must stand in no file, event or message out of a text. */
const redactor = (values: readonly string[]): Redact =>
  Object.assign((text: string) => redactSecrets(text, values), {
    unfinished: (text: string) => unfinishedSecret(text, values),
  })

async function prompt(
  definition: Definition,
  workdir: string,
  also: Required<Pick<PromptParts, 'servers' | 'channels'>>,
): Promise<string> {
  const workspace = await openConfined(join(definition.root, 'workspace'))
  const note = async (name: string): Promise<string> => {
    try {
      return await workspace.readText(name, { maxBytes: noteBytes })
    } catch (error) {
      // The agent's own notes are its to delete, to grow, or to replace by a link: the prompt says so and goes on.
      if (!isReveError(error)) throw error
      return error.code === 'not_found' ? '' : `(${name} was not read: ${error.message})`
    }
  }
  return systemPrompt({
    instructions: definition.instructions,
    skills: (await findSkills(workspace)).skills,
    ...also,
    agents: await note('AGENTS.md'),
    soul: await note('SOUL.md'),
    knowledge: await note('KNOWLEDGE.md'),
    environment: { workdir, image: definition.policy.image, reachable: definition.policy.allow },
  })
}
