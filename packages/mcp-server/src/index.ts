/**
 * The computer: trees, refs, actions, git, seats and events behind eight MCP tools.
 *
 * @packageDocumentation
 */
export { initComputer, openComputer, openSeats } from './computer.ts'
export type { CallOptions, CallResult, Computer, ComputerOptions } from './computer.ts'
export { ComputerError } from './errors.ts'
export type { ComputerErrorCode } from './errors.ts'
export type { Event, Events, Metrics } from './events.ts'
export { serveHttp } from './http.ts'
export type { HttpOptions, HttpServer } from './http.ts'
export type { Seat, Seats, SeatTexts } from './seats.ts'
