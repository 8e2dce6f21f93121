-- What this agent is, in code; instructions.md says it in prose. Both are read
-- from this directory and nowhere else.

agent {
  -- "provider/model", as listed in models.yml.
  model = "openai/gpt-5.6-luna",

  -- How much the model thinks before it answers:
  -- "off", "minimal", "low", "medium", "high", or a number of tokens.
  thinking = "low",
}
