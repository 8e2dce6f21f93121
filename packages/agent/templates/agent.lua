-- What this agent is, in code; instructions.md says it in prose. Both are read
-- from this directory and nowhere else. docs/lua.md of reve says it all.

agent {
  -- "provider/model", as listed in models.yml.
  model = "openai/gpt-5.6-luna",

  -- How much the model thinks before it answers:
  -- "off", "minimal", "low", "medium", "high", or a number of tokens.
  thinking = "low",

  -- What people see; the name of this folder when it is left out.
  -- name = "my agent",

  -- A run, or a day, that would use more ends. Tokens, US dollars, or both.
  -- budget = { run = { usd = 2 }, day = { tokens = 5000000, usd = 20 } },

  -- Others may reach this agent while `reve serve` or bare `reve` runs: by files
  -- in channels/drop/, and over HTTP on this machine with a token.
  -- channels = { drop = true, http = { port = 7411, token = "$REVE_TOKEN" } },

  -- Tools of MCP servers, over HTTP. They work outside of the microVM: name
  -- only servers that the agent may use unattended.
  -- mcp = { kc = { url = "http://127.0.0.1:7333/mcp", headers = { Authorization = "Bearer $KC_TOKEN" } } },
}

-- Code that stands in the way of a run. This one asks for a reason first:
-- on("before_tool", function(event, ctx)
--   if event.tool == "bash" and event.arguments.command:find("git push", 1, true) then
--     return { block = "pushing is for people; say what should be pushed and why" }
--   end
-- end)

-- What you can type: /standup
-- command("standup", {
--   description = "What was done since yesterday",
--   run = function(args, ctx)
--     return { prompt = "Say what was done since yesterday:\n" .. ctx.sh("git log --oneline --since=yesterday") }
--   end,
-- })
