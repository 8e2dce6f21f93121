import type { Api } from '../src/index.ts'

type Schema = Readonly<Record<string, unknown>>

const object = (properties: Schema, required: readonly string[] = Object.keys(properties)): Schema => ({
  type: 'object',
  additionalProperties: false,
  properties,
  required,
})
const list = (items: Schema, minItems = 0): Schema => ({ type: 'array', items, minItems })
const one = (...of: readonly string[]): Schema => ({ enum: of })
const any = (...of: readonly Schema[]): Schema => ({ anyOf: of })
const text: Schema = { type: 'string' }
const words: Schema = { type: 'string', minLength: 1 }
const callId = (longest: number): Schema => ({ type: 'string', pattern: `^[A-Za-z0-9_-]{1,${longest}}$` })
/** Of Chat Completions the servers that imitate it make their own. */
const anyCallId: Schema = { type: 'string', pattern: '^[!-~]{1,128}$' }
const callName: Schema = { type: 'string', pattern: '^[A-Za-z0-9_-]{1,64}$' }
const json: Schema = { type: 'object' }
const yes: Schema = { const: true }
const no: Schema = { const: false }
const tokens: Schema = { type: 'integer', minimum: 1 }
const dataUrl: Schema = { type: 'string', pattern: '^data:[a-z]+/[a-z0-9.+-]+;base64,' }
const functionSpec = { name: words, description: text, parameters: json }

/** What each API takes, as its documentation has it, of the parts that are sent. Nothing beyond is let through. */
export const apiSchemas: Readonly<Record<Api, Schema>> = {
  'openai-completions': object(
    {
      model: words,
      messages: list(
        any(
          object({ role: one('system', 'developer'), content: words }),
          object({
            role: one('user'),
            content: any(
              words,
              list(
                any(
                  object({ type: one('text'), text: words }),
                  object({ type: one('image_url'), image_url: object({ url: dataUrl }) }),
                ),
                1,
              ),
            ),
          }),
          object({ role: one('assistant'), content: words }),
          object(
            {
              role: one('assistant'),
              content: any(words, { type: 'null' }),
              tool_calls: list(
                object(
                  {
                    id: anyCallId,
                    type: one('function'),
                    function: object({ name: callName, arguments: words }),
                    extra_content: json,
                  },
                  ['id', 'type', 'function'],
                ),
                1,
              ),
              reasoning_content: text,
              reasoning: text,
              reasoning_details: list(json, 1),
            },
            ['role', 'content', 'tool_calls'],
          ),
          object({ role: one('tool'), tool_call_id: anyCallId, content: words }),
        ),
        1,
      ),
      tools: list(object({ type: one('function'), function: object(functionSpec) }), 1),
      stream: yes,
      stream_options: object({ include_usage: yes }),
      store: no,
      reasoning_effort: words,
      prompt_cache_key: words,
      max_tokens: tokens,
      max_completion_tokens: tokens,
    },
    ['model', 'messages', 'stream', 'stream_options'],
  ),
  'openai-responses': object(
    {
      model: words,
      instructions: words,
      input: list(
        any(
          object({
            type: one('message'),
            role: one('user'),
            content: list(
              any(
                object({ type: one('input_text'), text: words }),
                object({ type: one('input_image'), detail: one('auto'), image_url: dataUrl }),
              ),
              1,
            ),
          }),
          object({ type: one('message'), role: one('assistant'), content: words, phase: words }, [
            'type',
            'role',
            'content',
          ]),
          object({ type: one('function_call'), call_id: callId(64), name: callName, arguments: words }),
          object({
            type: one('function_call_output'),
            call_id: callId(64),
            output: any(
              text,
              list(
                any(
                  object({ type: one('input_text'), text }),
                  object({ type: one('input_image'), detail: one('auto'), image_url: dataUrl }),
                ),
                1,
              ),
            ),
          }),
          {
            type: 'object',
            properties: {
              type: one('reasoning'),
              id: words,
              summary: list(json),
              encrypted_content: any(text, { type: 'null' }),
            },
            required: ['type', 'id', 'summary'],
          },
        ),
        1,
      ),
      tools: list(object({ type: one('function'), ...functionSpec, strict: no }), 1),
      stream: yes,
      store: no,
      include: list(one('reasoning.encrypted_content'), 1),
      reasoning: object({ effort: words }),
      prompt_cache_key: words,
      max_output_tokens: tokens,
    },
    ['model', 'input', 'stream', 'store', 'max_output_tokens'],
  ),
  'anthropic-messages': (() => {
    const mark = { cache_control: object({ type: one('ephemeral') }) }
    const textBlock = object({ type: one('text'), text: words, ...mark }, ['type', 'text'])
    const imageBlock = object(
      { type: one('image'), source: object({ type: one('base64'), media_type: words, data: text }), ...mark },
      ['type', 'source'],
    )
    return object(
      {
        model: words,
        max_tokens: tokens,
        stream: yes,
        system: list(textBlock, 1),
        tools: list(
          object({ name: words, description: text, input_schema: json, ...mark }, [
            'name',
            'description',
            'input_schema',
          ]),
          1,
        ),
        thinking: any(
          object({ type: one('enabled'), budget_tokens: { type: 'integer', minimum: 1024 } }),
          object({ type: one('disabled') }),
          object({ type: one('adaptive'), display: one('summarized') }),
        ),
        output_config: object({ effort: words }),
        messages: list(
          any(
            object({
              role: one('user'),
              content: list(
                any(
                  textBlock,
                  imageBlock,
                  object(
                    {
                      type: one('tool_result'),
                      tool_use_id: callId(64),
                      content: list(any(textBlock, imageBlock), 1),
                      is_error: yes,
                      ...mark,
                    },
                    ['type', 'tool_use_id'],
                  ),
                ),
                1,
              ),
            }),
            object({
              role: one('assistant'),
              content: list(
                any(
                  textBlock,
                  object({ type: one('tool_use'), id: callId(64), name: callName, input: json, ...mark }, [
                    'type',
                    'id',
                    'name',
                    'input',
                  ]),
                  object({ type: one('thinking'), thinking: text, signature: words }),
                  object({ type: one('redacted_thinking'), data: words }),
                ),
                1,
              ),
            }),
          ),
          1,
        ),
      },
      ['model', 'max_tokens', 'stream', 'messages'],
    )
  })(),
}
