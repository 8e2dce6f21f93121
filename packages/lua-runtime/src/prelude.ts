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
local concat, pack, getinfo = table.concat, table.pack, debug.getinfo
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

local CANNOT = "ctx.sh cannot wait here: this code runs inside a callback of a C function "
  .. "(table.sort, string.gsub, a metamethod such as __gc or __tostring); call ctx.sh before it and keep the result"

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
    if not isyieldable() then return pass(co, resume(co, false, CANNOT)) end
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
for name, place in next, { agent = "agent.lua", sandbox = "sandbox.lua", tool = "a file in tools/" } do
  rawset(shared, name, function() raise(name .. " can only be called in " .. place .. ", while that file is loaded") end)
end

-- ---- loading
local loading = false
local runs = {}
local function declarer(kind)
  return function(value, ...)
    if not loading then raise(kind .. " can only be called while its file is loaded") end
    local file, line = author()
    local extra = select("#", ...)
    if extra > 0 then raise(kind .. " takes one table, got " .. (extra + 1) .. " arguments") end
    declare(kind, file or loading, line or 1, nil, value, "nil")
  end
end
local function tool(name, spec)
  if not loading then raise("tool can only be called while its file is loaded") end
  local file, line = author()
  local run, copy = nil, spec
  if type(spec) == "table" then
    run, copy = rawget(spec, "run"), {}
    for k, v in next, spec do if k ~= "run" then copy[k] = v end end
  end
  declare("tools", file or loading, line or 1, name, copy, type(run))
  if type(name) == "string" and runs[name] == nil then runs[name] = run end
end

local api = {}
function api.load(file, source, chunkname, kind)
  -- each file has its own globals; what it does not define is shared
  local env = {}
  env._G = env
  env.load = loader(env)
  if kind == "tools" then env.tool = tool else env[kind] = declarer(kind) end
  setmetatable(env, { __index = shared })
  local f, message = load0(source, chunkname, "t", env)
  if not f then return message end
  main, loading = running(), file
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
function api.call(name, args, workdir, key)
  local token = {}
  main, current, loading = running(), token, false
  local function alive(what)
    if current ~= token then raise(what .. ": this ctx belongs to a call that has ended") end
  end
  local ctx = { workdir = workdir, idempotency_key = key, shellescape = shellescape }
  function ctx.sh(command, ...)
    alive("ctx.sh")
    if command == ctx then raise("call ctx.sh(command) with a dot, not a colon") end
    if type(command) ~= "string" then raise("ctx.sh needs a command (a string), got " .. type(command)) end
    if select("#", ...) > 0 then raise("ctx.sh takes one command (a string)") end
    if not isyieldable() then raise(CANNOT) end
    local ok, value = yield(ASYNC, command)
    if ok then return value end
    raise(value)
  end
  function ctx.progress(text)
    alive("ctx.progress")
    if text == ctx then raise("call ctx.progress(text) with a dot, not a colon") end
    if type(text) ~= "string" and type(text) ~= "number" then raise("ctx.progress needs a text, got " .. type(text)) end
    emit("progress", tostring(text))
  end
  return runs[name](args, ctx)
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
