// Prints `N passed, N failed, N skipped` from vitest's JSON report; exits 1 when a test failed or none ran.
import { readFileSync } from 'node:fs'

const [file] = process.argv.slice(2)
if (file === undefined) {
  process.stderr.write('usage: node scripts/count-tests.mjs <vitest-report.json>\n')
  process.exit(2)
}
let report
try {
  report = JSON.parse(readFileSync(file, 'utf8'))
} catch (error) {
  process.stderr.write(`no test report in ${file}: ${error.message}\n`)
  process.stdout.write('0 passed, 1 failed, 0 skipped\n')
  process.exit(1)
}
const passed = report.numPassedTests
// A file that could not be loaded has no tests to count and still is a failure.
const broken = report.testResults.filter(
  (result) => result.status === 'failed' && result.assertionResults.length === 0,
).length
const failed = report.numFailedTests + broken
const skipped = report.numPendingTests + report.numTodoTests
process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`)
process.exitCode = failed > 0 || passed === 0 ? 1 : 0
