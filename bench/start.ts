import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Comparison } from './measure.ts'

const node = async (...args: readonly string[]): Promise<void> => {
  await once(spawn(process.execPath, args, { stdio: 'ignore' }), 'close')
}
const bin = (path: string): string => fileURLToPath(new URL(`../apps/${path}`, import.meta.url))

/** What a user waits for before anything happens. */
export const comparisons: readonly Comparison[] = [
  {
    name: 'reve --version',
    peer: 'node -e 0',
    goal: 'at most 2',
    ours: () => node(bin('reve-cli/bin/reve.js'), '--version'),
    theirs: () => node('-e', '0'),
  },
  {
    name: 'kc --version',
    peer: 'node -e 0',
    goal: 'at most 2',
    ours: () => node(bin('kc-server/bin/kc.js'), '--version'),
    theirs: () => node('-e', '0'),
  },
]
