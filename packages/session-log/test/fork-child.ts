/**
 * A process of its own for the fork test: `node --conditions=@reve/source fork-child.ts <source> <target>`. It forks, and stops for
 * ever at the first label: when all entries have been handed over and the session is not finished.
 */
import { writeSync } from 'node:fs'
import { forkSession } from '../src/index.ts'

const [source = '', target = ''] = process.argv.slice(2)
await forkSession(source, target, {
  newId: (prefix) => {
    if (prefix === 's_') return 's_child'
    writeSync(1, 'in the middle\n')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
    return prefix
  },
})
