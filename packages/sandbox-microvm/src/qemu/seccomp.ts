/**
 * A system call filter for QEMU's box: no file gets the setuid bit. Guests write into shared folders as the folder's owner,
 * so a setuid file there would be a program of the host that runs as that owner for whoever calls it. (QEMU's own filter,
 * which is on too, knows nothing of modes.) Setgid stays possible: folders hand it down to what is made in them.
 */

const EPERM = 1
const ENOSYS = 38
const SETUID = 0o4000
const O_CREAT = 0o100
const O_TMPFILE = 0o20000000
/** AUDIT_ARCH_X86_64 */
const X86_64 = 0xc000003e
/** Numbers of another calling convention start here. */
const X32 = 0x40000000

const ALLOW = 0x7fff0000
const KILL = 0x80000000
const refuse = (error: number): number => 0x00050000 | error

type Instruction = readonly [code: number, whenTrue: number, whenFalse: number, value: number]

const load = (offset: number): Instruction => [0x20, 0, 0, offset]
/** The low half of an argument; modes and flags are no wider. */
const loadArgument = (index: number): Instruction => load(16 + 8 * index)
const ifEqual = (value: number, whenTrue: number, whenFalse: number): Instruction => [0x15, whenTrue, whenFalse, value]
const ifAtLeast = (value: number, whenTrue: number, whenFalse: number): Instruction => [
  0x35,
  whenTrue,
  whenFalse,
  value,
]
const ifAnyBit = (bits: number, whenTrue: number, whenFalse: number): Instruction => [0x45, whenTrue, whenFalse, bits]
const answer = (value: number): Instruction => [0x06, 0, 0, value]

/** Calls with the mode in one argument: chmod, fchmod, creat, mkdir, mknod, mkdirat, mknodat, fchmodat, fchmodat2. */
const withMode: readonly (readonly [call: number, mode: number])[] = [
  [90, 1],
  [91, 1],
  [85, 1],
  [83, 1],
  [133, 1],
  [258, 2],
  [259, 2],
  [268, 2],
  [452, 2],
]
/** Calls whose mode counts when they create: open, openat. */
const withFlags: readonly (readonly [call: number, flags: number, mode: number])[] = [
  [2, 1, 2],
  [257, 2, 3],
]
/** Calls that say what they do in memory, where no filter sees it: openat2, io_uring_setup. Programs do without. */
const unseen: readonly number[] = [437, 425]

const program: readonly Instruction[] = [
  load(4),
  ifEqual(X86_64, 1, 0),
  answer(KILL),
  load(0),
  ifAtLeast(X32, 0, 1),
  answer(refuse(ENOSYS)),
  ...withMode.flatMap(([call, mode]) => [
    ifEqual(call, 0, 4),
    loadArgument(mode),
    ifAnyBit(SETUID, 0, 1),
    answer(refuse(EPERM)),
    answer(ALLOW),
  ]),
  ...withFlags.flatMap(([call, flags, mode]) => [
    ifEqual(call, 0, 6),
    loadArgument(flags),
    ifAnyBit(O_CREAT | O_TMPFILE, 0, 3),
    loadArgument(mode),
    ifAnyBit(SETUID, 0, 1),
    answer(refuse(EPERM)),
    answer(ALLOW),
  ]),
  ...unseen.flatMap((call) => [ifEqual(call, 0, 1), answer(refuse(ENOSYS))]),
  answer(ALLOW),
]

/** The filter as the kernel takes it: eight bytes an instruction. */
export function seccompFilter(): Uint8Array {
  const bytes = Buffer.alloc(program.length * 8)
  for (const [index, [code, whenTrue, whenFalse, value]] of program.entries()) {
    bytes.writeUInt16LE(code, index * 8)
    bytes.writeUInt8(whenTrue, index * 8 + 2)
    bytes.writeUInt8(whenFalse, index * 8 + 3)
    bytes.writeUInt32LE(value >>> 0, index * 8 + 4)
  }
  return new Uint8Array(bytes)
}
