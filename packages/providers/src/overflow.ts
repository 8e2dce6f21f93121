/**
 * How servers say that a conversation does not fit. One row a wording, with who uses it; each row has a test. Matched
 * only where a status or type does not already mean something else (a rate limit also speaks of too many tokens).
 */
export const overflowWordings: readonly { readonly vendor: string; readonly pattern: RegExp }[] = [
  { vendor: 'OpenAI', pattern: /context_length_exceeded/i },
  { vendor: 'OpenAI', pattern: /maximum context length/i },
  { vendor: 'OpenAI Responses', pattern: /exceeds the context window/i },
  { vendor: 'Anthropic', pattern: /prompt is too long/i },
  { vendor: 'Anthropic', pattern: /input length and `?max_tokens`? exceed context limit/i },
  { vendor: 'Anthropic', pattern: /request_too_large/i },
  { vendor: 'Bedrock', pattern: /input is too long/i },
  { vendor: 'Gemini', pattern: /exceeds the maximum number of tokens/i },
  { vendor: 'xAI', pattern: /maximum prompt length is \d+/i },
  { vendor: 'Groq', pattern: /reduce the length of the messages/i },
  { vendor: 'llama.cpp', pattern: /exceed_context_size_error/i },
  { vendor: 'llama.cpp', pattern: /exceeds the available context size/i },
  { vendor: 'LM Studio', pattern: /greater than the context length/i },
  { vendor: 'LM Studio', pattern: /tokens to keep from the initial prompt/i },
  { vendor: 'vLLM', pattern: /longer than the maximum model length/i },
  { vendor: 'Kimi', pattern: /exceeded model token limit/i },
  { vendor: 'MiniMax', pattern: /context window exceeds limit/i },
  { vendor: 'Mistral', pattern: /too large for model with \d+ maximum context length/i },
  { vendor: 'OpenRouter', pattern: /endpoint's maximum context length/i },
  { vendor: 'Ollama', pattern: /exceeds? (?:the )?(?:max(?:imum)? )?context (?:length|window|size)/i },
  { vendor: 'generic', pattern: /too many tokens in (?:the )?(?:prompt|input|request)/i },
  { vendor: 'generic', pattern: /context (?:length|window) (?:was |is |has been )?exceeded/i },
]

/** Whether a server's words (message, code and type together) mean that the conversation is too long. */
export function saysOverflow(words: string): boolean {
  return overflowWordings.some(({ pattern }) => pattern.test(words))
}
