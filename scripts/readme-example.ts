import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export type ExampleRun = { readonly code: number | null; readonly stdout: string; readonly stderr: string }

/**
 * Runs the `index`-th fenced block of a README whose language is `lang` (default `ts`) as a stranger would: the block
 * is written as a module beside the README and run by Node (which strips the types) in a fresh working folder, against
 * the packages' sources.
 *
 * @param readme URL of the README, for example `new URL('../README.md', import.meta.url)`.
 * @returns exit code and output; a block that does not exist is an error.
 */
export async function runReadmeExample(
  readme: URL,
  options: { readonly index?: number; readonly lang?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<ExampleRun> {
  const text = await readFile(readme, 'utf8')
  const blocks = [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].filter(
    (block) => block[1] === (options.lang ?? 'ts'),
  )
  const block = blocks[options.index ?? 0]?.[2]
  if (block === undefined)
    throw new Error(`${fileURLToPath(readme)} has no ${options.lang ?? 'ts'} block ${options.index ?? 0}`)
  const folder = await mkdtemp(join(tmpdir(), 'readme-'))
  try {
    // Beside the README, so that the package can be imported by its own name; run in a folder of its own.
    const file = join(fileURLToPath(new URL('.', readme)), `.readme-example-${process.pid}-${Date.now()}.ts`)
    await writeFile(file, block)
    try {
      return await new Promise<ExampleRun>((resolve, reject) => {
        const child = spawn(process.execPath, ['--conditions=@reve/source', file], {
          cwd: folder,
          env: { ...process.env, ...options.env },
          stdio: ['ignore', 'pipe', 'pipe'],
        })
        let stdout = ''
        let stderr = ''
        child.stdout.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk))
        child.stderr.setEncoding('utf8').on('data', (chunk: string) => (stderr += chunk))
        child.on('error', reject)
        child.on('close', (code) => resolve({ code, stdout, stderr }))
      })
    } finally {
      await rm(file, { force: true })
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
