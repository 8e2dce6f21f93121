import type { Api, AssistantMessage } from '../src/index.ts'
import { sse } from './play.ts'

export type Fixture = {
  readonly name: string
  readonly api: Api
  readonly stream: string
  readonly message: AssistantMessage
}

const model = 'fixture/test-model'
const thinking = { type: 'thinking', thinking: 'Let me see… 🤔', signature: 'c2lnbmF0dXJlKys=' }
const reasoningItem = {
  id: 'rs_1',
  type: 'reasoning',
  summary: [{ type: 'summary_text', text: 'Let me see… 🤔' }],
  encrypted_content: 'ZW5jcnlwdGVk',
  status: null,
}

/** One whole answer for each protocol, with reasoning, text beyond ASCII, two calls, usage, a comment and an unknown event. */
export const fixtures: readonly Fixture[] = [
  {
    name: 'anthropic',
    api: 'anthropic-messages',
    stream:
      sse(
        {
          type: 'message_start',
          message: {
            usage: { input_tokens: 10, cache_read_input_tokens: 90, cache_creation_input_tokens: 5, output_tokens: 1 },
          },
        },
        { type: 'ping' },
        { type: 'content_block_start', index: 0, content_block: { type: 'thinking', thinking: '', signature: '' } },
        { type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: 'Let me see… ' } },
        { type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: '🤔' } },
        { type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: 'c2lnbmF0dXJlKys=' } },
        { type: 'content_block_stop', index: 0 },
        { type: 'content_block_start', index: 1, content_block: { type: 'text', text: 'H' } },
        { type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: 'éllo 🌍' } },
        { type: 'content_block_stop', index: 1 },
      ) +
      ': a comment\n\n' +
      sse(
        {
          type: 'content_block_start',
          index: 2,
          content_block: { type: 'tool_use', id: 'toolu_1', name: 'read', input: {} },
        },
        { type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: '{"path":' } },
        { type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: '"ä.txt"}' } },
        { type: 'content_block_stop', index: 2 },
        {
          type: 'content_block_start',
          index: 3,
          content_block: { type: 'tool_use', id: 'toolu_2', name: 'list', input: {} },
        },
        { type: 'content_block_delta', index: 3, delta: { type: 'input_json_delta', partial_json: '' } },
        { type: 'content_block_stop', index: 3 },
        { type: 'something_new', value: 1 },
        { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 40 } },
        { type: 'message_stop' },
      ),
    message: {
      role: 'assistant',
      model,
      content: [
        { type: 'reasoning', text: 'Let me see… 🤔', opaque: { 'anthropic-messages': thinking } },
        { type: 'text', text: 'Héllo 🌍' },
        { type: 'toolCall', id: 'toolu_1', name: 'read', arguments: { path: 'ä.txt' } },
        { type: 'toolCall', id: 'toolu_2', name: 'list', arguments: {} },
      ],
      stopReason: 'toolUse',
      usage: { input: 10, cacheRead: 90, cacheWrite: 5, output: 40, reasoning: 0 },
    },
  },
  {
    name: 'completions',
    api: 'openai-completions',
    stream:
      sse(
        { choices: [{ index: 0, delta: { role: 'assistant', content: null } }], usage: null },
        { choices: [{ index: 0, delta: { reasoning_content: 'Let me see… ' } }] },
        { choices: [{ index: 0, delta: { content: 'H', reasoning_content: '🤔' } }] },
        { choices: [{ index: 0, delta: { content: 'éllo 🌍' } }] },
      ) +
      ': a comment\r\n\r\n' +
      sse(
        {
          choices: [
            {
              delta: {
                tool_calls: [{ index: 0, id: 'call_a', type: 'function', function: { name: 'read', arguments: '' } }],
              },
            },
          ],
        },
        { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '{"path":' } }] } }] },
        { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '"ä.txt"}' } }] } }] },
        {
          choices: [{ delta: { tool_calls: [{ index: 1, id: 'call_b', function: { name: 'list', arguments: '' } }] } }],
        },
        { choices: [{ delta: {}, finish_reason: 'tool_calls' }] },
        {
          choices: [],
          usage: {
            prompt_tokens: 100,
            completion_tokens: 40,
            prompt_tokens_details: { cached_tokens: 90 },
            completion_tokens_details: { reasoning_tokens: 7 },
          },
        },
        '[DONE]',
      ),
    message: {
      role: 'assistant',
      model,
      content: [
        {
          type: 'reasoning',
          text: 'Let me see… 🤔',
          opaque: { 'openai-completions': { reasoning_content: 'Let me see… 🤔' } },
        },
        { type: 'text', text: 'Héllo 🌍' },
        { type: 'toolCall', id: 'call_a', name: 'read', arguments: { path: 'ä.txt' } },
        { type: 'toolCall', id: 'call_b', name: 'list', arguments: {} },
      ],
      stopReason: 'toolUse',
      usage: { input: 10, cacheRead: 90, cacheWrite: 0, output: 40, reasoning: 7 },
    },
  },
  {
    name: 'responses',
    api: 'openai-responses',
    stream:
      sse(
        { type: 'response.created', response: { id: 'resp_1' } },
        { type: 'response.output_item.added', output_index: 0, item: { id: 'rs_1', type: 'reasoning', summary: [] } },
        { type: 'response.reasoning_summary_part.added', output_index: 0, item_id: 'rs_1', summary_index: 0 },
        { type: 'response.reasoning_summary_text.delta', output_index: 0, item_id: 'rs_1', delta: 'Let me see… ' },
        { type: 'response.reasoning_summary_text.delta', output_index: 0, item_id: 'rs_1', delta: '🤔' },
        { type: 'response.output_item.done', output_index: 0, item: reasoningItem },
        { type: 'response.output_item.added', output_index: 1, item: { id: 'msg_1', type: 'message', content: [] } },
        { type: 'response.output_text.delta', output_index: 1, item_id: 'msg_1', delta: 'H' },
        { type: 'response.output_text.delta', output_index: 1, item_id: 'msg_1', delta: 'éllo 🌍' },
        {
          type: 'response.output_item.done',
          output_index: 1,
          item: { id: 'msg_1', type: 'message', content: [{ type: 'output_text', text: 'Héllo 🌍', annotations: [] }] },
        },
      ) +
      ': a comment\n\n' +
      sse(
        {
          type: 'response.output_item.added',
          output_index: 2,
          item: { id: 'fc_1', type: 'function_call', call_id: 'call_a', name: 'read', arguments: '' },
        },
        {
          type: 'response.output_item.added',
          output_index: 3,
          item: { id: 'fc_2', type: 'function_call', call_id: 'call_b', name: 'list', arguments: '' },
        },
        { type: 'response.function_call_arguments.delta', output_index: 2, item_id: 'fc_1', delta: '{"path":' },
        { type: 'response.function_call_arguments.delta', output_index: 3, item_id: 'fc_2', delta: '{}' },
        { type: 'response.function_call_arguments.delta', output_index: 2, item_id: 'fc_1', delta: '"ä.txt"}' },
        {
          type: 'response.function_call_arguments.done',
          output_index: 2,
          item_id: 'fc_1',
          arguments: '{"path":"ä.txt"}',
        },
        {
          type: 'response.output_item.done',
          output_index: 2,
          item: { id: 'fc_1', type: 'function_call', call_id: 'call_a', name: 'read', arguments: '{"path":"ä.txt"}' },
        },
        {
          type: 'response.output_item.done',
          output_index: 3,
          item: { id: 'fc_2', type: 'function_call', call_id: 'call_b', name: 'list', arguments: '{}' },
        },
        { type: 'response.something.new', value: 1 },
        {
          type: 'response.completed',
          response: {
            status: 'completed',
            usage: {
              input_tokens: 100,
              input_tokens_details: { cached_tokens: 90 },
              output_tokens: 40,
              output_tokens_details: { reasoning_tokens: 7 },
            },
          },
        },
      ),
    message: {
      role: 'assistant',
      model,
      content: [
        { type: 'reasoning', text: 'Let me see… 🤔', opaque: { 'openai-responses': reasoningItem } },
        { type: 'text', text: 'Héllo 🌍' },
        { type: 'toolCall', id: 'call_a', name: 'read', arguments: { path: 'ä.txt' } },
        { type: 'toolCall', id: 'call_b', name: 'list', arguments: {} },
      ],
      stopReason: 'toolUse',
      usage: { input: 10, cacheRead: 90, cacheWrite: 0, output: 40, reasoning: 7 },
    },
  },
]
