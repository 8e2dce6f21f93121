// A process of its own that a test kills: it makes the image of a reference in a cache, and says when it is there.
import { prepareImage } from '../../src/index.ts'

const [ref = '', cacheDir = ''] = process.argv.slice(2)
const { id } = await prepareImage({ ref, packages: [] }, { cacheDir, runtimeDir: '/run/none' })
process.stdout.write(`${id}\n`)
