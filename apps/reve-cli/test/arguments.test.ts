import { describe, expect, test } from 'vitest'
import { parseCommand, UsageError } from '../src/arguments.ts'

const run = {
  type: 'run',
  prompt: undefined,
  stdin: false,
  resume: false,
  json: false,
  model: undefined,
  maxTurns: undefined,
}

describe('a command line', () => {
  test.each([
    [[], { type: 'help', topic: undefined }],
    [['--help'], { type: 'help', topic: undefined }],
    [['help', 'run'], { type: 'help', topic: 'run' }],
    [['run', '--help'], { type: 'help', topic: 'run' }],
    [['--version'], { type: 'version' }],
    [['init'], { type: 'init', folder: '.', json: false }],
    [['init', 'my agent', '--json'], { type: 'init', folder: 'my agent', json: true }],
    [['info'], { type: 'info', json: false }],
    [['doctor', '--json'], { type: 'doctor', json: true }],
    [['exec', 'ls | wc -l'], { type: 'exec', words: ['ls | wc -l'] }],
    [
      ['exec', '--', 'git', 'log', '--oneline', '-n', '3'],
      { type: 'exec', words: ['git', 'log', '--oneline', '-n', '3'] },
    ],
    [['exec', 'git', '--help'], { type: 'exec', words: ['git', '--help'] }],
    [['tool'], { type: 'tool', name: undefined, args: '{}' }],
    [['tool', 'example', '--args', '{"commits":2}'], { type: 'tool', name: 'example', args: '{"commits":2}' }],
    [['run', 'make', 'it', 'work'], { ...run, prompt: 'make it work' }],
    [['run', 'review', 'this:', '-'], { ...run, prompt: 'review this:', stdin: true }],
    [['run', '-'], { ...run, stdin: true }],
    [['run', '--', 'what does', '--help', 'do?'], { ...run, prompt: 'what does --help do?' }],
    [['run', '-c'], { ...run, resume: true }],
    [
      ['run', '--continue', '-m', 'a/b/c', '--max-turns', '3', '--json', 'on'],
      { ...run, resume: true, model: 'a/b/c', maxTurns: 3, json: true, prompt: 'on' },
    ],
    [['image'], { type: 'image', action: 'ls', json: false }],
    [['image', 'ls', '--json'], { type: 'image', action: 'ls', json: true }],
    [['image', 'pull', 'alpine'], { type: 'image', action: 'pull', ref: 'alpine', json: false }],
    [['image', 'build'], { type: 'image', action: 'build', ref: undefined, packages: [], json: false }],
    [
      ['image', 'build', 'debootstrap:trixie', '--packages', 'git,jq'],
      { type: 'image', action: 'build', ref: 'debootstrap:trixie', packages: ['git', 'jq'], json: false },
    ],
    [
      ['image', 'rm', 'a', 'b', '--force'],
      { type: 'image', action: 'rm', names: ['a', 'b'], force: true, json: false },
    ],
    [['sessions'], { type: 'sessions', action: 'list', json: false }],
    [['sessions', '--json'], { type: 'sessions', action: 'list', json: true }],
    [['sessions', 'verify'], { type: 'sessions', action: 'verify', session: undefined, json: false }],
    [
      ['sessions', 'verify', 'x.jsonl', '--json'],
      { type: 'sessions', action: 'verify', session: 'x.jsonl', json: true },
    ],
    [
      ['sessions', 'salvage', 'a', 'b'],
      { type: 'sessions', action: 'salvage', session: 'a', target: 'b', json: false },
    ],
    [
      ['sessions', 'fork', 'a', 'b'],
      { type: 'sessions', action: 'fork', session: 'a', target: 'b', at: undefined, lane: undefined, json: false },
    ],
    [
      ['sessions', 'fork', '--at', 'e_1', 'a', 'b', '--lane=side'],
      { type: 'sessions', action: 'fork', session: 'a', target: 'b', at: 'e_1', lane: 'side', json: false },
    ],
    [
      ['sessions', 'name', 'a', 'the', 'good', 'one'],
      { type: 'sessions', action: 'name', session: 'a', name: 'the good one', json: false },
    ],
  ])('%j', (argv, command) => {
    expect(parseCommand(argv)).toEqual(command)
  })
})

describe('is refused with its reason', () => {
  test.each([
    [['--frob'], 'unknown option --frob'],
    [['frob'], 'no command "frob"'],
    [['init', 'a', 'b'], 'unexpected argument "b"'],
    [['exec'], 'nothing to run'],
    [['exec', '--'], 'nothing to run'],
    [['exec', '-x'], 'put -- before'],
    [['run', '--max-turns', '0', 'x'], '--max-turns takes a whole number'],
    [['run', '--frob', 'x'], "Unknown option '--frob'"],
    [['tool', 'a', 'b'], 'unexpected argument "b"'],
    [['image', 'frob'], 'image has no "frob"'],
    [['image', 'pull'], 'takes the image to pull'],
    [['image', 'pull', 'a', 'b'], 'unexpected argument "b"'],
    [['image', 'rm'], 'takes the images to remove'],
    [['image', 'ls', '--force'], '--force is an option of image rm'],
    [['image', 'pull', 'a', '--packages', 'b'], '--packages is an option of image build'],
    [['image', 'build', '--packages', 'b'], '--packages needs an image'],
    [['sessions', 'frob'], 'sessions has no "frob"'],
    [['sessions', 'salvage'], 'takes the refused file'],
    [['sessions', 'salvage', 'a', 'b', 'c'], 'unexpected argument "c"'],
    [['sessions', 'list', 'a'], 'unexpected argument "a"'],
    [['sessions', 'verify', 'a', 'b'], 'unexpected argument "b"'],
    [['sessions', 'verify', '--at', 'e_1'], '--at is an option of sessions fork'],
    [['sessions', 'search'], 'takes what to look for'],
    [['sessions', 'export', 'a', '--format', 'pdf'], 'takes md, json, html'],
    [['run', '--thinking', 'loud', 'x'], '--thinking takes off, minimal, low, medium, high'],
    [['completion', 'a', 'b'], 'unexpected argument "b"'],
    [['sessions', 'verify', '--frob'], "Unknown option '--frob'"],
    [['sessions', 'fork'], 'takes the session to fork'],
    [['sessions', 'fork', 'a', 'b', '--at'], '--at'],
    [['sessions', 'name', 'a'], 'takes a session and its name'],
  ])('%j', (argv, reason) => {
    expect(() => parseCommand(argv)).toThrow(UsageError)
    expect(() => parseCommand(argv)).toThrow(reason)
  })
})
