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
  session: undefined,
  thinking: undefined,
}
const rewind = { type: 'rewind', entry: 'e_1', files: true, session: undefined, lane: undefined, json: false }
const serve = { type: 'serve', heartbeats: true, channels: true, http: undefined, session: undefined, json: false }
const sessions = { type: 'sessions', json: false }

/** `reve` alone. */
const bare = {
  type: 'terminal',
  model: undefined,
  session: undefined,
  thinking: undefined,
  theme: undefined,
  services: true,
} as const

describe('a command line', () => {
  test.each([
    [[], bare],
    [['terminal'], bare],
    [
      ['-m', 'a/b', '--thinking', '200', '--theme', 'dark', '--no-services', '-s', 's'],
      { ...bare, model: 'a/b', thinking: 200, theme: 'dark', services: false, session: 's' },
    ],
    [['--help'], { type: 'help', topic: undefined }],
    [['help', 'run'], { type: 'help', topic: 'run' }],
    [['run', '--help'], { type: 'help', topic: 'run' }],
    [['--version'], { type: 'version' }],
    [['init'], { type: 'init', folder: '.', json: false }],
    [['init', 'my agent', '--json'], { type: 'init', folder: 'my agent', json: true }],
    [['info'], { type: 'info', json: false }],
    [['doctor', '--json'], { type: 'doctor', json: true }],
    [['exec', 'ls | wc -l'], { type: 'exec', words: ['ls | wc -l'], wait: false }],
    [
      ['exec', '--', 'git', 'log', '--oneline', '-n', '3'],
      { type: 'exec', words: ['git', 'log', '--oneline', '-n', '3'], wait: false },
    ],
    [['exec', '--wait', '--', 'make', '-j4'], { type: 'exec', words: ['make', '-j4'], wait: true }],
    [['exec', 'git', '--help'], { type: 'exec', words: ['git', '--help'], wait: false }],
    [['tool'], { type: 'tool', name: undefined, args: '{}', json: false }],
    [
      ['tool', 'example', '--args', '{"commits":2}'],
      { type: 'tool', name: 'example', args: '{"commits":2}', json: false },
    ],
    [['run', 'make', 'it', 'work'], { ...run, prompt: 'make it work' }],
    [['run', 'review', 'this:', '-'], { ...run, prompt: 'review this:', stdin: true }],
    [['run', '-'], { ...run, stdin: true }],
    [['run', '--', 'what does', '--help', 'do?'], { ...run, prompt: 'what does --help do?' }],
    [['run', '-c'], { ...run, resume: true }],
    [
      ['run', '--continue', '-m', 'a/b/c', '--max-turns', '3', '--json', 'on'],
      { ...run, resume: true, model: 'a/b/c', maxTurns: 3, json: true, prompt: 'on' },
    ],
    [
      ['run', '-s', 'a.jsonl', '--thinking', 'high', 'x'],
      { ...run, prompt: 'x', session: 'a.jsonl', thinking: 'high', resume: true },
    ],
    [['run', '--thinking=4000', 'x'], { ...run, prompt: 'x', thinking: 4000 }],
    [['serve'], serve],
    [['serve', '--heartbeats'], { ...serve, channels: false }],
    [['serve', '--channels', '--http', '7400', '--json'], { ...serve, heartbeats: false, http: 7400, json: true }],
    [['serve', '--http=0', '-s', 'a'], { ...serve, http: 0, session: 'a' }],
    [['rewind', 'e_1'], rewind],
    [['rewind', 'e_1', '--files'], rewind],
    [
      ['rewind', '--no-files', 'e_1', '-s', 'a', '--lane', 'side', '--json'],
      { ...rewind, files: false, session: 'a', lane: 'side', json: true },
    ],
    [['completion', 'bash'], { type: 'completion', shell: 'bash', line: undefined }],
    [
      ['completion', '--words', 'run', '--model', ''],
      { type: 'completion', shell: undefined, line: ['run', '--model', ''] },
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
    [['sessions', 'rename', 'a', 'b'], { ...sessions, action: 'name', session: 'a', name: 'b' }],
    [
      ['sessions', 'label', 'a', 'e_1', 'a', 'start'],
      { ...sessions, action: 'label', session: 'a', entry: 'e_1', label: 'a start' },
    ],
    [
      ['sessions', 'label', 'a', 'e_1', '--remove'],
      { ...sessions, action: 'label', session: 'a', entry: 'e_1', label: undefined },
    ],
    [['sessions', 'search', 'two', 'words'], { ...sessions, action: 'search', text: 'two words', regex: false }],
    [['sessions', 'show', '--lane', 'side'], { ...sessions, action: 'show', session: undefined, lane: 'side' }],
    [
      ['sessions', 'export', 'a'],
      { ...sessions, action: 'export', session: 'a', target: undefined, format: 'md', lane: undefined },
    ],
    [
      ['sessions', 'export', 'a', 'b.html'],
      { ...sessions, action: 'export', session: 'a', target: 'b.html', format: 'html', lane: undefined },
    ],
    [
      ['sessions', 'export', 'a', 'b.html', '--format', 'json'],
      { ...sessions, action: 'export', session: 'a', target: 'b.html', format: 'json', lane: undefined },
    ],
  ])('%j', (argv, command) => {
    expect(parseCommand(argv)).toEqual(command)
  })
})

describe('is refused with its reason', () => {
  test.each([
    [['--frob'], "Unknown option '--frob'"],
    [['frob'], 'no command "frob"; there are terminal, init, info, run,'],
    [['sesions'], '(did you mean "sessions"?)'],
    [['run', '--modle', 'x', 'y'], `Unknown option '--modle' (did you mean "--model"?)`],
    [['sessions', 'serach', 'x'], '(did you mean "search"?)'],
    [['sessions', 'label', 'a', 'e_1'], 'its label or --remove'],
    [['sessions', 'label', 'a', 'e_1', 'x', '--remove'], 'its label or --remove'],
    [['sessions', 'name', 'a', 'b', '--remove'], '--remove is an option of sessions label'],
    [['serve', '--http', '70000'], '--http takes a port'],
    [['serve', '--http', '1', '--heartbeats'], '--http is a channel'],
    [['serve', 'x'], 'unexpected argument "x"'],
    [['rewind'], 'takes the entry to go back to'],
    [['rewind', 'e_1', '--files', '--no-files'], 'exclude each other'],
    [['rewind', 'e_1', 'e_2'], 'unexpected argument "e_2"'],
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
    [['rewind'], 'takes the entry to go back to'],
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
