#!/usr/bin/env node
// Plain JavaScript that every Node can read, so that an old one gets a sentence and not a syntax error.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major > 22 || (major === 22 && minor >= 18)) {
  await import('../dist/main.js')
} else {
  process.stderr.write(`reve: Node.js 22.18 or newer is needed, this is ${process.versions.node}\n`)
  process.exitCode = 3
}
