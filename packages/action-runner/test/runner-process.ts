import { openStore } from '@reve/content-store'
import { createActionRunner } from '@reve/action-runner'

/**
 * A server that runs one action, prints its result and ends, or is killed before. Arguments: store, slots, script, "user" or "own",
 * timeout in seconds.
 */
const [, , root = '', slotsDir = '', script = '', as = '', timeout = '600'] = process.argv
const store = await openStore(root)
const actionUser = { uid: 65534, gid: 65534, name: 'nobody' }
const runner = createActionRunner({
  store,
  slotsDir,
  hostFingerprint: 'test',
  ...(as === 'user' ? { actionUser } : {}),
})
const result = await runner.run({
  tree: store.emptyTree,
  argv: ['sh', '-c', script],
  caches: [{ name: 'kept', path: 'cache' }],
  timeoutS: Number(timeout),
})
console.log(JSON.stringify({ ...result, kill: runner.isolation().kill }))
await runner.close()
await store[Symbol.asyncDispose]()
