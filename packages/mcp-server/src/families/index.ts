import type { Family } from '../family.ts'
import { branch } from './branch.ts'
import { computer } from './computer.ts'
import { exec } from './exec.ts'
import { fs } from './fs.ts'
import { git } from './git.ts'
import { ref } from './ref.ts'
import { seat } from './seat.ts'
import { snapshot } from './snapshot.ts'

/** The eight families, in the order of the specification. */
export const families: readonly Family[] = [seat, fs, ref, branch, exec, git, snapshot, computer]
