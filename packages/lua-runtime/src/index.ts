export { loadLua } from './runtime.ts'
export type {
  CallOptions,
  HostFunction,
  LuaBody,
  LuaHostCalls,
  LuaLimits,
  LuaOptions,
  LuaRuntime,
  ShResult,
} from './runtime.ts'
export { LuaError } from './errors.ts'
export type { LuaErrorCode, LuaIssue } from './errors.ts'
export { positionOf } from './declarations.ts'
export type {
  ChannelDeclaration,
  CommandDeclaration,
  Declared,
  HookDeclaration,
  HookEvent,
  LuaProgram,
  LuaSource,
  LuaSources,
  Position,
  ToolDeclaration,
  ToolParam,
  ToolParamType,
} from './declarations.ts'
export { emptyTableAsList } from './values.ts'
export type { JsonObject, JsonValue, LuaValue } from './values.ts'
