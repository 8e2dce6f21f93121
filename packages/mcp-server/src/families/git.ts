import type { GitProgress, ImportResult, Note } from '@reve/git-bridge'
import * as v from 'valibot'
import { action, field } from '../action.ts'
import type { Family } from '../family.ts'
import { bounded } from '../text.ts'

export const git: Family = {
  name: 'git',
  purpose:
    'Git at the edge: the computer clones, commits and pushes with its own credential; trees go in and out without loss.',
  fields: {
    src: { type: 'string', description: 'Where to clone from: a URL or a path on the computer' },
    name: { type: 'string', description: "The clone's name; an import also sets the ref of that name" },
    ref: { type: 'string', description: 'Branch or tag to import (default: the default branch)' },
    gitignore: { type: 'boolean', description: 'Has no effect on an import: git has applied it already' },
    tree: { type: 'string', description: 'A tree id, or the name of a ref' },
    branch: { type: 'string', description: 'Branch of the clone' },
    message: { type: 'string', description: "The commit's message" },
    start_point: { type: 'string', description: 'Where a new branch starts (default: what was imported last)' },
    author: { type: 'string', description: 'Name <email>' },
    remote: { type: 'string', description: 'Where to push (default: where it was cloned from)' },
    n: { type: 'integer', description: 'How many commits (default 20)' },
  },
  hints: { readOnly: false, destructive: false, idempotent: false, openWorld: true },
  actions: {
    import: action({
      signature: 'git.import(src, name, ref?, gitignore?)',
      fields: { src: field.name, name: field.name, ref: v.optional(field.name), gitignore: v.optional(field.flag) },
      logged: ['src', 'name', 'ref', 'gitignore'],
      effect: 'long',
      run: async ({ git, seat, signal, progress, recordWithEffect }, { src, name, ref, gitignore }) => {
        progress('importing')
        return showImport(
          await git.import({
            src,
            name,
            actor: seat.name,
            signal,
            onProgress: (step) => progress(showProgress(step)),
            alongside: (result) => recordWithEffect(showImport(result)),
            ...(ref === undefined ? {} : { ref }),
            ...(gitignore === undefined ? {} : { gitignore }),
          }),
        )
      },
    }),
    export: action({
      signature: 'git.export(name, tree, branch, message, start_point?, author?)',
      fields: {
        name: field.name,
        tree: field.name,
        branch: field.name,
        message: field.name,
        start_point: v.optional(field.name),
        author: v.optional(field.name),
      },
      logged: ['name', 'tree', 'branch', 'start_point', 'author'],
      effect: 'long',
      run: async ({ git, seat, signal, progress }, { name, tree, branch, message, start_point, author }) => {
        const report = await git.export({
          name,
          tree,
          branch,
          message,
          actor: seat.name,
          signal,
          onProgress: (step) => progress(showProgress(step)),
          ...(start_point === undefined ? {} : { startPoint: start_point }),
          ...(author === undefined ? {} : { author }),
        })
        return bounded(
          [
            report.unchanged
              ? `the tree equals that of ${report.commit}: no commit was made on ${report.branch}`
              : `commit ${report.commit} on ${report.branch}`,
            ...(report.parent === null ? [] : [`parent ${report.parent}`]),
            ...report.notes.map(showNote),
          ].join('\n'),
          '',
        )
      },
    }),
    push: action({
      signature: 'git.push(name, branch, remote?)',
      fields: { name: field.name, branch: field.name, remote: v.optional(field.name) },
      logged: ['name', 'branch', 'remote'],
      effect: 'long',
      run: async ({ git, seat, signal, progress }, { name, branch, remote }) => {
        const report = await git.push({
          name,
          branch,
          actor: seat.name,
          signal,
          onProgress: (step) => progress(showProgress(step)),
          ...(remote === undefined ? {} : { remote }),
        })
        return `${outcomes[report.outcome]} ${report.branch} of ${report.remote}: ${report.commit}`
      },
    }),
    log: action({
      signature: 'git.log(name, n?)',
      fields: { name: field.name, n: v.optional(field.count(1000), 20) },
      logged: ['name', 'n'],
      effect: 'long',
      run: async ({ git, signal }, { name, n }) => {
        const commits = await git.log({ name, n, signal })
        const lines = commits.map(
          ({ commit, author, branches, subject }) =>
            `${commit} ${author.date} ${author.name} <${author.email}>${branches.length === 0 ? '' : ` (${branches.join(', ')})`} ${subject}`,
        )
        return bounded(lines.join('\n') || '(no commits)', 'Ask for fewer with n.')
      },
    }),
  },
}

const showProgress = ({ stage, done, total }: GitProgress): string =>
  `${stage} ${done}${total === undefined ? '' : ` of ${total}`}`

const outcomes = { created: 'created', updated: 'updated', up_to_date: 'nothing to push to' } as const

const showImport = (report: ImportResult): string =>
  bounded(
    [
      `imported ${report.commit ?? 'an empty repository'}${report.gitRef === null ? '' : ` (${report.gitRef})`} as ref ${report.ref}`,
      `tree ${report.tree}`,
      ...report.notes.map(showNote),
    ].join('\n'),
    'There are more notes.',
  )

const showNote = ({ message, count, where }: Note): string =>
  `note: ${message} (${count})${where.length === 0 ? '' : ` ${where.slice(0, 10).join(', ')}${where.length > 10 ? ', …' : ''}`}`
