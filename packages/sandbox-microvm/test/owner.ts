// A process of its own that runs a VM: it says when the VM is up and holds it until it is killed.
import { createMicroVm, type MicroVmHost, type MicroVmSpec } from '../src/index.ts'

const [spec, host] = process.argv.slice(2).map((text) => JSON.parse(text) as unknown) as [MicroVmSpec, MicroVmHost]
const vm = createMicroVm(spec, host, { backend: 'qemu' })
await vm.exec({ argv: ['sh', '-c', 'echo written > /root/before-the-kill; sync; (sleep 5000 &)'] })
console.log('up', vm.status().pid)
await vm.exec({ argv: ['sh', '-c', 'while :; do echo more >> /root/growing; done'] })
