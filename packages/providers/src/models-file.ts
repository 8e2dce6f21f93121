import { messageOf } from '@reve/base'
import { parseYaml, YamlError } from '@reve/base/yaml'
import type { YamlIssue } from '@reve/base/yaml'
import * as v from 'valibot'
import { createCatalogue } from './catalogue.ts'
import type { Environment, ModelCatalogue, ProviderProblem } from './catalogue.ts'
import { authoritiesOf, modelsSchema, rawProviders, scriptsOf } from './models-schema.ts'
import type { LoadedScript, LoadedText, Provider } from './models-schema.ts'
import { parseScript } from './script-file.ts'
import type { TransportOptions } from './transport.ts'

/** What `loadModels` takes beside the text. */
export type LoadModelsOptions = {
  /** The name that messages show, `models.yml`. */
  readonly file: string
  /** Reads a variable of the environment; asked when a model is resolved. */
  readonly env: Environment
  /** Reads a file by the path that `script:` or `ca:` gives, relative to the agent's root. */
  readonly readFile?: (relativePath: string) => Promise<string>
  readonly transport?: TransportOptions
}

/**
 * Reads `models.yml`. A provider that is wrong does not hide the others: it stands in `problems`, each line with
 * file:line:column.
 *
 * @throws {YamlError} when the file is no YAML, or is wrong outside of its providers.
 */
export async function loadModels(source: string, options: LoadModelsOptions): Promise<ModelCatalogue> {
  const { file, env, readFile, transport = {} } = options
  const raw = parseYaml(source, file, v.unknown())
  const scripts = new Map<string, LoadedScript>()
  for (const path of scriptsOf(raw)) scripts.set(path, await loadScript(path, readFile))
  const authorities = new Map<string, LoadedText>()
  for (const path of authoritiesOf(raw)) authorities.set(path, await loadText(path, readFile))
  const schema = modelsSchema(scripts, authorities)
  try {
    const { providers } = parseYaml(source, file, schema.file)
    return createCatalogue(file, new Map(Object.entries(providers)), [], env, transport)
  } catch (error) {
    if (!(error instanceof YamlError)) throw error
    const wrong = Map.groupBy(error.issues, (issue) => providerOf(issue, Object.keys(rawProviders(raw))))
    if (wrong.has(undefined)) throw error
    const problems = [...wrong].map(([provider, issues]): ProviderProblem => {
      return { provider: provider ?? '', message: new YamlError('yaml_schema', issues).message }
    })
    const right = Object.entries(rawProviders(raw)).filter(([name]) => !wrong.has(name))
    const providers = right.map(([name, provider]): [string, Provider] => [name, v.parse(schema.provider, provider)])
    return createCatalogue(file, new Map(providers), problems, env, transport)
  }
}

async function loadText(path: string, readFile: LoadModelsOptions['readFile']): Promise<LoadedText> {
  if (readFile === undefined) return { problem: 'files cannot be read here' }
  try {
    return { text: await readFile(path) }
  } catch (error) {
    return { problem: `cannot read ${path}: ${messageOf(error)}` }
  }
}

async function loadScript(path: string, readFile: LoadModelsOptions['readFile']): Promise<LoadedScript> {
  if (readFile === undefined) return { problem: 'script files cannot be read here; give turns' }
  try {
    return { turns: parseScript(await readFile(path), path) }
  } catch (error) {
    return {
      problem: error instanceof YamlError ? `is wrong:\n${error.message}` : `cannot read ${path}: ${messageOf(error)}`,
    }
  }
}

/** The provider that an issue is about; its path is `providers/<name>/…`. */
function providerOf(issue: YamlIssue, names: readonly string[]): string | undefined {
  const own = names.filter((name) => `${issue.path}/`.startsWith(`providers/${name}/`))
  return own.toSorted((a, b) => b.length - a.length)[0]
}
