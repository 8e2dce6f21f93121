import { execFile } from 'node:child_process'

/**
 * Every program that this app starts on the host, and why. Nothing that a model wrote ever reaches one.
 *
 * @public read by the house's own test
 */
export const HOST_PROGRAMS = {
  npm: 'reve init asks npm for its registry, to list that host in sandbox.lua',
} as const

/** The registry that npm is set up with, or undefined where there is no npm. */
export function npmRegistry(): Promise<string | undefined> {
  return new Promise((resolve) => {
    execFile('npm', ['config', 'get', 'registry'], { timeout: 10_000 }, (error, stdout) => {
      resolve(error === null ? stdout.trim() : undefined)
    })
  })
}
