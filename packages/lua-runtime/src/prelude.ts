/** Chunk name of the prelude: its frames are left out of every traceback. */
export const PRELUDE_NAME = '[reve]'

/**
 * The Lua side of the host. Runs once in a new state, with the host's functions as arguments, and returns the entry
 * points that the host calls.
 *
 * - An async host call yields `ASYNC` up to the host, which resumes it with (ok, value). `coroutine.resume` and `wrap` pass
 *   such yields through, so that it also looks synchronous inside the author's own coroutines.
 * - `fatal(message)` is true when a limit or an abort ended the call: whatever could catch such an error raises it again.
 * - Library functions are captured here, so that a script that overwrites them breaks only itself.
 */
export const PRELUDE = `
local ASYNC, NULL, fatal, emit, declare, array_mt = ...
local yield, resume, create, running = coroutine.yield, coroutine.resume, coroutine.create, coroutine.running
local isyieldable, close, status = coroutine.isyieldable, coroutine.close, coroutine.status
local pcall0, xpcall0, error, load0 = pcall, xpcall, error, load
local type, tostring, next, select, rawget, rawset = type, tostring, next, select, rawget, rawset
local setmetatable, getmetatable = setmetatable, getmetatable
local concat, pack, getinfo, table_sort = table.concat, table.pack, debug.getinfo, table.sort
local gsub, find, sub = string.gsub, string.find, string.sub
local os_time, os_date, os_clock, os_difftime = os.time, os.date, os.clock, os.difftime
local collect = collectgarbage

-- the nearest frame of the author's files
local function author()
  for level = 3, 250 do
    local info = getinfo(level, "Sl")
    if not info then return nil end
    if sub(info.source, 1, 1) == "@" and info.currentline > 0 then return sub(info.source, 2), info.currentline, info.short_src end
  end
end
local function raise(message)
  local _, line, short = author()
  if line then message = short .. ":" .. line .. ": " .. message end
  error(message, 0)
end

local CANNOT = " cannot wait here: this code runs inside a callback of a C function "
  .. "(table.sort, string.gsub, a metamethod such as __gc or __tostring); call it before that and keep the result"

-- ---- limits cannot be caught
local function checked(ok, ...)
  if not ok and fatal((...)) then error((...), 0) end
  return ok, ...
end
function pcall(f, ...) return checked(pcall0(f, ...)) end
function xpcall(f, handler, ...)
  return checked(xpcall0(f, function(e)
    if fatal(e) then return e end
    return handler(e)
  end, ...))
end

-- ---- coroutines
local main
local function pass(co, ok, tag, ...)
  if ok and tag == ASYNC then
    if not isyieldable() then return pass(co, resume(co, false, "ctx." .. (...) .. CANNOT)) end
    return pass(co, resume(co, yield(ASYNC, ...)))
  end
  if not ok and fatal(tag) then error(tag, 0) end
  return ok, tag, ...
end
function coroutine.resume(co, ...) return pass(co, resume(co, ...)) end
local function unwrap(co, ok, ...)
  if ok then return ... end
  if status(co) == "dead" then close(co) end
  error((...), 0)
end
function coroutine.wrap(f)
  local co = create(f)
  return function(...) return unwrap(co, pass(co, resume(co, ...))) end
end
function coroutine.yield(...)
  if running() == main then raise("attempt to yield from outside a coroutine") end
  return yield(...)
end
function coroutine.isyieldable() return running() ~= main and isyieldable() end

-- ---- text chunks only, in the environment of the file that loads them
local function loader(env)
  return function(chunk, name, _, ...)
    local target = env
    if select("#", ...) > 0 then target = (...) end
    local f, message = load0(chunk, name, "t", target)
    if not f then
      if fatal(message) then error(message, 0) end
      return nil, message
    end
    return f
  end
end

function print(...)
  local parts = pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  emit("print", concat(parts, "\\t", 1, parts.n))
end
function collectgarbage(option)
  if option == nil or option == "collect" or option == "count" then return collect(option) end
  raise('collectgarbage takes "collect" or "count" here')
end
dofile, loadfile, warn, debug, load = nil, nil, nil, nil, nil
os = { time = os_time, date = os_date, clock = os_clock, difftime = os_difftime }
json = { null = NULL, array = function(t)
  if t == nil then t = {} end
  if type(t) ~= "table" then raise("json.array needs a table, got " .. type(t)) end
  return setmetatable(t, array_mt)
end }
local shared = _G
for name, place in next, {
  agent = "agent.lua", sandbox = "sandbox.lua", tool = "a file in tools/", channel = "a file in channels/",
  on = "agent.lua or a file in tools/", command = "agent.lua or a file in tools/",
} do
  rawset(shared, name, function() raise(name .. " can only be called in " .. place .. ", while that file is loaded") end)
end

-- ---- modules of the agent's own
local modules, required = {}, {}
local environment
-- names of the modules that are being loaded, the outermost first; begun anew with each call
local opening = {}
local function require(name)
  if type(name) ~= "string" then raise("require needs a name (a string), got " .. type(name)) end
  local done = required[name]
  if done ~= nil then return done.value end
  local module = modules[name]
  if not module then
    local known = {}
    for other in next, modules do known[#known + 1] = other end
    table_sort(known)
    local there = #known == 0 and "there are none" or "there are " .. concat(known, ", ")
    raise('there is no module "' .. name .. '" in tools/lib/ (' .. there .. "); nothing else can be required")
  end
  local stack = opening
  for i = 1, #stack do
    if stack[i] == name then raise("modules require each other: " .. concat(stack, " > ", i) .. " > " .. name) end
  end
  local f, message = load0(module.source, "@" .. module.file, "t", environment())
  if not f then error(message, 0) end
  stack[#stack + 1] = name
  local guard <close> = setmetatable({}, { __close = function() stack[#stack] = nil end })
  local value = f(name)
  if value == nil then value = true end
  required[name] = { value = value }
  return value
end
function environment()
  -- each file has its own globals; what it does not define is shared
  local env = { require = require }
  env._G = env
  env.load = loader(env)
  return setmetatable(env, { __index = shared })
end

-- ---- loading
local loading = false
local bodies = { tool = {}, command = {}, poll = {}, reply = {}, hook = {} }
-- Says what was declared, without its functions, which are kept here.
local function say(callee, name, value, ...)
  if not loading then raise(callee .. " can only be called while its file is loaded") end
  local file, line = author()
  local functions, types, copy = {}, {}, value
  if type(value) == "table" then
    copy = {}
    for k, v in next, value do copy[k] = v end
    for i = 1, select("#", ...) do
      local key = select(i, ...)
      functions[key], copy[key] = rawget(value, key), nil
      types[key] = type(functions[key])
    end
  end
  declare(callee, file or loading, line or 1, name, copy, types)
  return functions
end
local function keep(kind, name, body)
  if type(name) == "string" and bodies[kind][name] == nil then bodies[kind][name] = body end
end
local function declarer(callee)
  return function(value, ...)
    local extra = select("#", ...)
    if extra > 0 then raise(callee .. " takes one table, got " .. (extra + 1) .. " arguments") end
    return say(callee, nil, value)
  end
end
local function tool(name, spec) keep("tool", name, say("tool", name, spec, "run").run) end
local function command(name, spec) keep("command", name, say("command", name, spec, "run").run) end
local function on(event, hook, ...)
  say("on", event, { hook = hook, more = select("#", ...) }, "hook")
  bodies.hook[#bodies.hook + 1] = type(hook) == "function" and hook or false
end
local function channel(spec, ...)
  if select("#", ...) > 0 then raise("channel takes one table") end
  local functions = say("channel", nil, spec, "poll", "reply")
  keep("poll", loading, functions.poll)
  keep("reply", loading, functions.reply)
end

local api = {}
function api.modules(name, file, source, chunkname)
  local f, message = load0(source, chunkname, "t", {})
  if not f then return message end
  modules[name] = { file = file, source = source }
end
function api.load(file, source, chunkname, kind)
  local env = environment()
  if kind == "agent" or kind == "sandbox" then env[kind] = function(...) declarer(kind)(...) end end
  if kind == "tools" then env.tool = tool end
  if kind == "channels" then env.channel = channel end
  if kind == "agent" or kind == "tools" then env.on, env.command = on, command end
  local f, message = load0(source, chunkname, "t", env)
  if not f then return message end
  main, loading, opening = running(), file, {}
  f()
end
function api.loaded() loading = false end

-- ---- calling
local current
local function shellescape(s)
  if type(s) == "number" then s = tostring(s) end
  if type(s) ~= "string" then raise("ctx.shellescape needs a string, got " .. type(s)) end
  if find(s, "\\0", 1, true) then raise("ctx.shellescape: a shell word cannot hold a NUL byte") end
  return "'" .. gsub(s, "'", "'\\\\''") .. "'"
end
function api.call(kind, name, args, workdir, key, names)
  local token = {}
  main, current, loading, opening = running(), token, false, {}
  local ctx = { workdir = workdir, idempotency_key = key, shellescape = shellescape }
  local function alive(what, first)
    if current ~= token then raise("ctx." .. what .. ": this ctx belongs to a call that has ended") end
    if first == ctx then raise("call ctx." .. what .. "(…) with a dot, not a colon") end
  end
  -- a function of ctx that waits for the host
  local function asking(what)
    return function(...)
      alive(what, (...))
      if not isyieldable() then raise("ctx." .. what .. CANNOT) end
      local ok, value = yield(ASYNC, what, ...)
      if ok then return value end
      raise(value)
    end
  end
  -- one that only says something
  local function saying(what)
    return function(text)
      alive(what, text)
      if type(text) ~= "string" and type(text) ~= "number" then raise("ctx." .. what .. " needs a text, got " .. type(text)) end
      emit(what, tostring(text))
    end
  end
  for i = 1, #names do ctx[names[i]] = asking(names[i]) end
  ctx.progress, ctx.log = saying("progress"), saying("log")
  local sh = ctx.sh
  if sh then
    function ctx.sh(command, ...)
      alive("sh", command)
      if type(command) ~= "string" then raise("ctx.sh needs a command (a string), got " .. type(command)) end
      if select("#", ...) > 0 then raise("ctx.sh takes one command (a string)") end
      return sh(command)
    end
  end
  local body = bodies[kind][name]
  if type(body) ~= "function" then error("the " .. kind .. " " .. tostring(name) .. " is not there any more", 0) end
  if kind == "poll" then return body(ctx) end
  return body(args, ctx)
end
-- the text of anything that was raised
function api.describe(e)
  if type(e) == "string" then return e end
  if e == nil then return "error(nil)" end
  local mt = getmetatable(e)
  if type(mt) == "table" and rawget(mt, "__tostring") then
    local ok, text = pcall0(tostring, e)
    if ok then return text end
  end
  if type(e) == "table" and type(rawget(e, "message")) == "string" then return rawget(e, "message") end
  if type(e) == "table" then
    local parts = {}
    for k, v in next, e do
      if #parts == 8 then parts[9] = "…" break end
      parts[#parts + 1] = tostring(k) .. " = " .. tostring(v)
    end
    return "error object { " .. concat(parts, ", ") .. " }"
  end
  return "error(" .. tostring(e) .. ")"
end
return api
`
