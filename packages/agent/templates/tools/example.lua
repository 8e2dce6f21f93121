-- A project tool. Every tools/*.lua file is trusted code of yours, loaded
-- before any work runs: drop in a file and it is a tool, there is no registry.
--
-- The body runs in Lua on the host, without files, network or programs; what
-- it does, it does in the microVM:
--   ctx.sh(command)             its output; the exit code is data
--   ctx.exec { cmd =, timeout =, stdin =, env =, cwd = }
--                               code, stdout, stderr, timed_out
--   ctx.read(path)  ctx.write(path, text)
--   ctx.shellescape(text)  ctx.workdir  ctx.idempotency_key
--   ctx.progress(text)  ctx.log(text)
-- require("name") loads tools/lib/name.lua, and nothing else.

tool("example", {
  description = "Summarize the working tree: branch, status, and recent commits",

  -- "safe": it only reads, so recovery may run it again after a crash.
  -- "never" (the default): recovery reports that its outcome is unknown.
  replay = "safe",

  params = {
    { name = "commits", type = "integer", description = "How many commits to list", default = 5 },
  },

  run = function(args, ctx)
    local branch = ctx.sh("git rev-parse --abbrev-ref HEAD 2>/dev/null || echo '(no repo)'")
    local status = ctx.sh("git status --short 2>/dev/null || true")
    local log = ctx.sh("git log --oneline -n " .. tostring(args.commits) .. " 2>/dev/null || true")

    if status == "" then status = "(clean)\n" end
    return ("branch: %sstatus:\n%s\nrecent commits:\n%s"):format(branch, status, log)
  end,
})
