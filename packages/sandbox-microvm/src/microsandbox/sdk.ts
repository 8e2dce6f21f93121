import { readFileSync, realpathSync } from 'node:fs'
import { findPackageJSON } from 'node:module'
import { codeOf } from '@reve/base'
import * as v from 'valibot'

/** Platforms for which the SDK carries a runtime and we a guest agent. */
const SUPPORTED: readonly string[] = ['linux-x64']

const Manifest = v.pipe(v.string(), v.parseJson(), v.object({ version: v.string() }))

/** Whose SDK is looked for: `from` is the module that would import it. */
export type SdkPlace = { readonly platform: string; readonly arch: string; readonly from: string }

const thisPlace = (): SdkPlace => ({ platform: process.platform, arch: process.arch, from: import.meta.url })

/** Whether the SDK and its runtime for this machine are installed. */
export type FoundSdk = { readonly ok: true; readonly version: string } | { readonly ok: false; readonly why: string }

/** Looks for the SDK; nothing of it is loaded. */
export function findSdk(place: SdkPlace = thisPlace()): FoundSdk {
  const name = `${place.platform}-${place.arch}`
  if (!SUPPORTED.includes(name))
    return {
      ok: false,
      why: `this version's guests run on Linux on x64 (amd64), and this is ${place.platform} on ${place.arch}`,
    }
  const sdk = manifestOf('microsandbox', place.from)
  const runtime = sdk === undefined ? undefined : manifestOf(`@superradcompany/microsandbox-${name}-gnu`, sdk)
  if (runtime === undefined)
    return {
      ok: false,
      why: `the package ${sdk === undefined ? '"microsandbox"' : `with microsandbox's runtime for ${name}`} is not installed; it comes with: npm install microsandbox@0.6.18`,
    }
  return { ok: true, version: v.parse(Manifest, readFileSync(runtime, 'utf8')).version }
}

function manifestOf(name: string, from: string): string | undefined {
  try {
    const found = findPackageJSON(name, from)
    // What it needs itself lies beside its real place.
    return found === undefined ? undefined : realpathSync(found)
  } catch (error) {
    if (codeOf(error) === 'ERR_MODULE_NOT_FOUND') return undefined
    throw error
  }
}
