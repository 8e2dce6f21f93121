-- This repository is an agent directory too, for work on itself: `npx reve run "…"`.
-- AGENTS.md says how the house is built.

agent {
  model = "openai/gpt-5.6-luna",
  thinking = "medium",
}
