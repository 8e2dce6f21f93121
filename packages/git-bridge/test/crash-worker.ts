import { join } from 'node:path'
import { openStore } from '@reve/content-store'
import { createGitBridge } from '../src/index.ts'

/**
 * A child that uses a bridge until it is killed. Arguments: a folder with `source` and `remote.git`, and a mode: `loop` imports,
 * exports and pushes for ever, and prints each commit that was answered; `import` does one import of the given address.
 */
const [, , root = '', mode = '', src = ''] = process.argv
const store = await openStore(join(root, 'store'))
const bridge = createGitBridge({
  store,
  reposDir: join(root, 'repos'),
  identity: { name: 'kc', email: 'kc@example.com' },
})
const actor = 'worker'
const say = (line: string): void => void process.stdout.write(`${line}\n`)

if (mode === 'import') {
  say('started')
  await bridge.import({ src, name: 'stalled', actor })
} else {
  for (let round = 0; ; round += 1) {
    const name = `clone-${process.pid}-${round}`
    const { tree } = await bridge.import({ src: join(root, 'source'), name, actor })
    say(`imported ${name}`)
    const remote = await bridge.import({ src: join(root, 'remote.git'), name: 'remote', actor })
    for (let step = 0; step < 3; step += 1) {
      const files = Array.from({ length: 30 }, (_, index) => ({
        path: `new/${step}/${index}`,
        set: { kind: 'file' as const, id: store.putBlob(Buffer.from(`${process.pid} ${round} ${step} ${index}`)) },
      }))
      const edited = store.editTree(step === 0 ? tree : remote.tree, files)
      const branch = `work-${process.pid}`
      const { commit } = await bridge.export({ name: 'remote', tree: edited, branch, message: `step ${step}`, actor })
      say(`exported ${branch} ${commit}`)
      await bridge.push({ name: 'remote', branch, actor })
      say(`pushed ${branch} ${commit}`)
    }
  }
}
