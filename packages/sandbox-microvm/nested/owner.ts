import { forOwner } from './checks.ts'

// Runs until it is killed.
const vm = forOwner()
await vm.exec({ argv: ['sh', '-c', 'echo synced > /root/by-owner; sync'] })
await vm.acquire()
process.stdout.write('written\n')
