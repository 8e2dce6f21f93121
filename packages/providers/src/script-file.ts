import { parseYaml } from '@reve/base/yaml'
import * as v from 'valibot'
import type { JsonObject, ModelFailureCode } from './model.ts'
import type { ScriptedTurn } from './scripted.ts'
import { anyText, flag, listOf, oneOf, strict, text, whole } from './strict.ts'

const failureCodes = [
  'auth',
  'not_found',
  'bad_request',
  'overflow',
  'rate_limited',
  'quota',
  'overloaded',
  'server',
  'network',
  'timeout',
  'protocol',
  'ended_early',
  'refused',
  'script',
] as const satisfies readonly ModelFailureCode[]

const call = v.pipe(
  strict(
    {
      name: text,
      arguments: v.exactOptional(v.custom<JsonObject>(isMapping, 'must be a mapping')),
      malformed: v.exactOptional(anyText),
      id: v.exactOptional(text),
    },
    'a call: name, and arguments or malformed',
  ),
  v.check((given) => !('arguments' in given && 'malformed' in given), 'has arguments and malformed; give one of them'),
)

const tokens = v.exactOptional(whole('tokens', 0))
const turn = strict(
  {
    text: v.exactOptional(anyText),
    reasoning: v.exactOptional(anyText),
    calls: v.exactOptional(v.array(call, 'must be a list of calls')),
    delayMs: v.exactOptional(whole('milliseconds', 0)),
    chunk: v.exactOptional(whole('characters', 1)),
    stop: v.exactOptional(oneOf(['stop', 'length', 'toolUse'])),
    usage: v.exactOptional(
      strict(
        { input: tokens, cacheRead: tokens, cacheWrite: tokens, output: tokens, reasoning: tokens },
        'counts of tokens',
      ),
    ),
    fail: v.exactOptional(
      strict(
        {
          code: v.exactOptional(oneOf(failureCodes)),
          message: v.exactOptional(text),
          retryable: v.exactOptional(flag),
          retryAfterMs: v.exactOptional(whole('milliseconds', 0)),
          status: v.exactOptional(whole('status', 100)),
          requestId: v.exactOptional(text),
          times: v.exactOptional(whole('attempts', 0)),
          afterText: v.exactOptional(flag),
        },
        'a failure',
      ),
    ),
  },
  'a turn: text, reasoning, calls, …',
)

/** The turns of a scripted model, as they stand in `models.yml` or in a script file. */
export const turnsSchema = listOf(turn, 'turns')

/**
 * Reads a script: a YAML list of turns.
 *
 * @param file the name that messages show.
 * @throws {YamlError} with every issue at its line and column.
 */
export function parseScript(source: string, file: string): readonly ScriptedTurn[] {
  return parseYaml(source, file, turnsSchema)
}

function isMapping(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
