import type { ActionResult } from '@reve/action-runner'
import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import { bounded, showText } from '../text.ts'

const Cache = v.strictObject(
  {
    name: field.name,
    path: field.name,
    mode: v.optional(v.picklist(['locked', 'shared'], 'must be "locked" or "shared"')),
  },
  'must be {name, path, mode?}',
)
/** Counted before they are looked into. */
const Caches = v.pipe(
  v.array(v.unknown(), 'must be a list of {name, path, mode?}'),
  v.maxLength(32, 'must be at most 32 caches'),
  v.array(Cache),
)

export const exec: Family = {
  name: 'exec',
  purpose:
    'Run a command on a tree in a sandbox. The same action on the same tree is answered from the result cache; the result is a new tree.',
  fields: {
    tree: { type: 'string', description: 'A tree id, or the name of a ref' },
    argv: {
      type: 'array',
      items: { type: 'string', description: 'One argument' },
      description: 'The program and its arguments; no shell',
    },
    cwd: { type: 'string', description: 'Folder of the tree to run in' },
    env: {
      type: 'object',
      additionalProperties: { type: 'string' },
      description: 'Environment; nothing else is inherited',
    },
    timeout: { type: 'number', description: 'Seconds until it is killed (default 600)' },
    sandbox: {
      type: 'string',
      enum: ['local', 'bwrap', 'docker', 'container', 'microvm'],
      description: 'Where to run (default local)',
    },
    image: { type: 'string', description: 'Image, for sandboxes that have one' },
    fresh: { type: 'boolean', description: 'Run even when the result is known' },
    caches: {
      type: 'array',
      description: 'Persistent folders, kept from run to run and left out of the result',
      items: {
        type: 'object',
        properties: {
          name: { type: 'string', description: "The cache's name" },
          path: { type: 'string', description: 'Where it is in the tree' },
          mode: { type: 'string', enum: ['locked', 'shared'], description: 'One run at a time (default), or several' },
        },
        required: ['name', 'path'],
        additionalProperties: false,
      },
    },
    network: { type: 'boolean', description: 'Open the network where the sandbox closes it' },
    gitignore: { type: 'boolean', description: 'Leave ignored untracked files out of the result' },
    blob: { type: 'string', description: 'Id of a stored stream' },
    offset: { type: 'integer', description: 'First line, from 1' },
    limit: { type: 'integer', description: 'How many lines (default 200)' },
  },
  hints: { readOnly: false, destructive: false, idempotent: true, openWorld: true },
  actions: {
    run: action({
      signature: 'exec.run(tree, argv, cwd?, env?, timeout?, sandbox?, image?, fresh?, caches?, network?, gitignore?)',
      fields: {
        tree: field.name,
        argv: v.pipe(field.texts, v.minLength(1, 'must name a program')),
        cwd: v.optional(field.text),
        env: v.optional(field.textMap),
        timeout: v.optional(field.seconds(86_400)),
        sandbox: v.optional(
          v.picklist(
            ['local', 'bwrap', 'docker', 'container', 'microvm'],
            'must be local, bwrap, docker, container or microvm',
          ),
        ),
        image: v.optional(field.name),
        fresh: v.optional(field.flag),
        caches: v.optional(Caches),
        network: v.optional(field.flag),
        gitignore: v.optional(field.flag),
      },
      logged: ['tree', 'argv', 'cwd', 'timeout', 'sandbox', 'image', 'fresh', 'network', 'gitignore'],
      effect: 'long',
      run: async ({ runner, store, signal, seat, progress }, args) => {
        const { tree, timeout, caches, ...rest } = args
        progress('running')
        const result = await runner.run(
          {
            ...withoutUndefined(rest),
            argv: args.argv,
            tree: store.refs.resolve(tree),
            ...(timeout === undefined ? {} : { timeoutS: timeout }),
            ...(caches === undefined
              ? {}
              : {
                  caches: caches.map((cache) => ({
                    name: cache.name,
                    path: cache.path,
                    ...(cache.mode === undefined ? {} : { mode: cache.mode }),
                  })),
                }),
          },
          { signal, actor: seat.name },
        )
        return bounded(showResult(result, signal.aborted), 'Read the streams by their blob ids with exec.output.')
      },
    }),
    output: action({
      signature: 'exec.output(blob, offset?, limit?)',
      fields: { blob: field.name, offset: v.optional(field.position, 1), limit: v.optional(field.count(10_000), 200) },
      logged: ['blob', 'offset', 'limit'],
      effect: 'read',
      run: async ({ store }, { blob, offset, limit }) => {
        const shown = await store.fs.output(blob, { offset, limit })
        return shown.kind === 'text'
          ? showText(shown)
          : `binary, ${shown.bytes} bytes${shown.type === undefined ? '' : `, ${shown.type}`}`
      },
    }),
  },
}

type Defined<T> = { readonly [K in keyof T]: Exclude<T[K], undefined> }

/** The fields that are there: an absent option and one that is undefined are the same to a caller. */
function withoutUndefined<T extends object>(value: T): Partial<Defined<T>> {
  return Object.fromEntries(Object.entries(value).filter(([, entry]) => entry !== undefined)) as Partial<Defined<T>>
}

function showResult(result: ActionResult, cancelled: boolean): string {
  const total = Math.round(
    result.timing.queueMs + result.timing.layoutMs + result.timing.runMs + result.timing.captureMs,
  )
  const ended = result.timedOut
    ? 'timed out and was killed'
    : result.signal === null
      ? `exit ${result.exitCode}`
      : cancelled
        ? 'cancelled, and was killed'
        : `killed by ${result.signal}`
  const how =
    result.cached === false ? `ran in ${total} ms` : `cached since ${result.cached.since}; fresh=true runs it again`
  const changed = result.changed.map(({ path, change }) => `${marks[change]} ${path}`)
  const more = changed.length > shownChanges ? [`… ${changed.length - shownChanges} more; fs.diff shows them`] : []
  return [
    `${ended} (${how})`,
    `tree ${result.tree}`,
    changed.length === 0 ? 'changed: nothing' : 'changed:',
    ...changed.slice(0, shownChanges),
    ...more,
    ...result.notCaptured.map(({ path, why }) => `not captured: ${path} (${why})`),
    ...result.linksLeaving.map(({ path, target }) => `link out of the tree: ${path} -> ${target}`),
    ...(result.leftRunning.count > 0
      ? [`still running at the end, and killed: ${result.leftRunning.count} (${result.leftRunning.names.join(', ')})`]
      : []),
    ...stream('stdout', result.stdout),
    ...stream('stderr', result.stderr),
  ].join('\n')
}

const marks = { added: '+', changed: '~', removed: '-', mode: 'm' } as const
const shownChanges = 100

const stream = (name: string, { text, bytes, blob }: ActionResult['stdout']): readonly string[] =>
  bytes === 0 ? [] : [`--- ${name} (${bytes} bytes, blob ${blob})`, text.trimEnd()]
