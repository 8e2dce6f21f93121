import * as v from 'valibot'
import { checkValue } from './arguments.ts'
import type { ToolDeclaration, ToolParam } from './declarations.ts'
import type { RawDeclaration } from './protocol.ts'
import { list, oneOf, problemsOf, text, unknownKey, type SpecProblem } from './spec-schema.ts'
import { emptyTableAsList, luaTypeName, type JsonObject, type JsonValue } from './values.ts'

const paramTypes = ['string', 'integer', 'number', 'boolean', 'array', 'object'] as const

const json: v.GenericSchema<unknown, JsonValue> = v.custom<JsonValue>(
  isJson,
  (issue) => `must be a JSON value (UTF-8 text, numbers within ±(2^53-1)), got ${luaTypeName(issue.input)}`,
)

const paramSchema = v.strictObject(
  {
    name: v.pipe(text, v.regex(/^[A-Za-z_][\w-]{0,63}$/, 'must be a name of letters, digits, _ and -, at most 64')),
    type: v.optional(oneOf(paramTypes), 'string'),
    description: v.optional(text),
    required: v.optional(
      v.boolean((issue) => `must be true or false, got ${luaTypeName(issue.input)}`),
      false,
    ),
    default: v.optional(json),
    enum: v.optional(v.pipe(list(json, '{ "a", "b" }'), v.minLength(1, 'must have at least one value'))),
  },
  unknownKey(['name', 'type', 'description', 'required', 'default', 'enum'], '{ name = "…", type = "…" }'),
)

const specSchema = v.strictObject(
  {
    description: v.optional(text, ''),
    replay: v.optional(oneOf(['safe', 'never']), 'never'),
    params: v.optional(list(paramSchema, '{ { name = "path", type = "string" } }'), []),
  },
  unknownKey(['description', 'replay', 'params', 'run'], '{ description = "…", run = function(args, ctx) … end }'),
)

const nameSchema = v.pipe(
  v.string((issue) => `tool(name, spec) needs a name (a string), got ${luaTypeName(issue.input)}`),
  v.regex(/^[A-Za-z0-9_-]{1,64}$/, 'the tool name must be 1 to 64 letters, digits, _ or -'),
)

/** Checks what `tool(name, spec)` was given. Pure; all problems at once. */
export function checkTool(
  raw: RawDeclaration,
): { readonly tool: ToolDeclaration } | { readonly problems: readonly SpecProblem[] } {
  const problems: SpecProblem[] = []
  const name = v.safeParse(nameSchema, raw.name)
  if (!name.success) problems.push(...name.issues.map((issue) => ({ path: '', message: issue.message })))
  const label = name.success ? `tool "${name.output}"` : 'tool'
  const parsed = v.safeParse(specSchema, raw.value)
  if (!parsed.success) problems.push(...problemsOf(parsed.issues, label, 'its second argument'))
  const run = raw.functions['run'] ?? 'nil'
  if (run !== 'function' && (parsed.success || parsed.issues.some((issue) => issue.path !== undefined)))
    problems.push({ path: '', message: `${label}: run must be a function(args, ctx), got ${run}` })
  if (!name.success || !parsed.success) return { problems }

  const params = parsed.output.params.map(toParam)
  params.forEach((param, index) => {
    const path = `params/${index}`
    const first = params.findIndex((other) => other.name === param.name)
    if (first < index) problems.push({ path, message: `${label}: the param "${param.name}" is declared twice` })
    param.enum?.forEach((value, position) => {
      const wrong = checkValue({ ...param, enum: undefined }, value)
      if (wrong !== undefined)
        problems.push({ path: `${path}/enum/${position}`, message: `${label}: enum of "${param.name}": ${wrong}` })
    })
    const wrong = param.default === undefined ? undefined : checkValue(param, param.default)
    if (wrong !== undefined)
      problems.push({ path: `${path}/default`, message: `${label}: default of "${param.name}": ${wrong}` })
  })
  if (problems.length > 0) return { problems }
  const { description, replay } = parsed.output
  const at = { file: raw.file, line: raw.line }
  return { tool: { name: name.output, description, replay, params, schema: jsonSchema(params), at } }
}

function toParam(param: v.InferOutput<typeof paramSchema>): ToolParam {
  const { name, type, description, required, enum: values } = param
  const fallback =
    type === 'array' && param.default !== undefined ? asJson(emptyTableAsList(param.default)) : param.default
  return {
    name,
    type,
    required,
    ...(description === undefined ? {} : { description }),
    ...(fallback === undefined ? {} : { default: fallback }),
    ...(values === undefined ? {} : { enum: values }),
  }
}

const asJson = (value: unknown): JsonValue => (isJson(value) ? value : null)

/** JSON Schema of a tool's arguments, as the model sees it. */
function jsonSchema(params: readonly ToolParam[]): JsonObject {
  const required = params.filter((param) => param.required && param.default === undefined).map((param) => param.name)
  return {
    type: 'object',
    properties: Object.fromEntries(
      params.map(({ name, type, description, default: fallback, enum: values }) => [
        name,
        {
          type,
          ...(description === undefined ? {} : { description }),
          ...(values === undefined ? {} : { enum: values }),
          ...(fallback === undefined ? {} : { default: fallback }),
        },
      ]),
    ),
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  }
}

function isJson(value: unknown): value is JsonValue {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return true
  if (typeof value === 'number') return Number.isFinite(value)
  if (typeof value !== 'object' || value instanceof Uint8Array) return false
  return Object.values(value).every(isJson)
}
