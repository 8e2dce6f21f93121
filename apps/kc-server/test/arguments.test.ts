import { describe, expect, test } from 'vitest'
import { parseCommand, UsageError } from '../src/arguments.ts'

describe('a command line', () => {
  test.each([
    [[], { type: 'help', topic: undefined }],
    [['help', 'env'], { type: 'help', topic: 'env' }],
    [['serve', '-h'], { type: 'help', topic: 'serve' }],
    [['--version'], { type: 'version' }],
    [['init', '--root', '/x'], { type: 'init', root: '/x' }],
    [['seat', 'create', 'me'], { type: 'seat', action: 'create', name: 'me', root: undefined }],
    [['seat', 'list', '--json'], { type: 'seat', action: 'list', json: true, root: undefined }],
    [['serve', '--port', '0', '--json'], { type: 'serve', port: '0', json: true, host: undefined, root: undefined }],
    [['fsck'], { type: 'fsck', json: false, root: undefined }],
  ])('%j', (argv, command) => {
    expect(parseCommand(argv)).toEqual(command)
  })

  test.each([
    [['frob'], 'no command "frob"'],
    [['seat'], 'seat needs one of'],
    [['seat', 'create'], "seat create needs the seat's name"],
    [['seat', 'frob'], 'seat has no "frob"'],
    [['serve', '--prot', '1'], "Unknown option '--prot'"],
    [['init', 'here'], 'unexpected argument "here"'],
    [['serve', '--host', ''], '--host needs a value'],
    [['init', '--root='], '--root needs a value'],
    [['\u001b]0;title'], 'no command "\\u001b]0;title"'],
  ])('%j is refused', (argv, reason) => {
    expect(() => parseCommand(argv)).toThrow(UsageError)
    expect(() => parseCommand(argv)).toThrow(reason)
  })
})
