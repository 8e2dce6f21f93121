import { setTimeout as sleep } from 'node:timers/promises'
import { live } from './kill-world.ts'

/** A process that takes messages in over both channels and answers them, until it is killed. */
const [, , folder = ''] = process.argv
const tell = (line: string): void => void process.stdout.write(`${line}\n`)
await live(folder, {
  thinking: () => sleep(Math.random() * 8),
  onListening: (port) => tell(`port ${port}`),
  onEvent: ({ type }) => tell(type),
})
