import { openCheckpoints } from '../src/checkpoints.ts'

/** Brings a workspace back to a checkpoint, and stays. */
const [store = '', workspace = '', tree = ''] = process.argv.slice(2)
const checkpoints = await openCheckpoints(store, workspace)
process.stdout.write('restoring\n')
await checkpoints.restore(tree)
setInterval(() => undefined, 1000)
