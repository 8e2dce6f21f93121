-- Two tools over one file. The bodies run in Lua, without files or programs: what touches ledger.csv is ctx.sh, in the microVM.

local kinds = { "food", "office", "travel" }

tool("add_expense", {
  description = "Writes one expense into ledger.csv",

  -- The default: after a crash nobody knows whether the line was written, so it is not written twice. The model is told, and looks.
  replay = "never",

  params = {
    { name = "kind", enum = kinds, required = true },
    { name = "amount", type = "number", required = true, description = "In euros, more than 0" },
    { name = "note", description = "What it was for", default = "" },
  },

  run = function(args, ctx)
    -- What a body raises is an error that the model reads, so it says what to do.
    if args.amount <= 0 then error("amount must be more than 0; a refund is not an expense") end
    local note = args.note:gsub("[,\r\n]+", ";")
    local line = ("%s,%.2f,%s"):format(args.kind, args.amount, note)
    ctx.sh("echo " .. ctx.shellescape(line) .. " >>ledger.csv")
    return "written: " .. line
  end,
})

tool("total", {
  description = "Adds ledger.csv up, by kind",
  replay = "safe", -- it only reads

  run = function(_, ctx)
    local sums, all = {}, 0
    for kind, amount in ctx.sh("cat ledger.csv"):gmatch("(%a+),([%d.]+)") do
      sums[kind] = (sums[kind] or 0) + tonumber(amount)
      all = all + tonumber(amount)
    end
    return { by_kind = sums, all = all }
  end,
})
