import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { writeCpio } from '../src/qemu/cpio.ts'

const hasCpio = spawnSync('cpio', ['--version']).status === 0
if (!hasCpio) console.warn('the archive is not read by cpio: it is not installed')

const entries = [
  { path: 'dev' },
  { path: 'init', data: Buffer.from('#!/bin/sh\n') },
  { path: 'lib' },
  { path: 'lib/odd', data: Buffer.from('12345'), mode: 0o644 },
  { path: 'lib/empty', data: new Uint8Array(), mode: 0o600 },
]

test('the same entries give the same bytes, in whole blocks', () => {
  const archive = writeCpio(entries)
  expect(archive).toEqual(writeCpio(entries))
  expect(archive.length % 512).toBe(0)
  expect(Buffer.from(archive).toString('latin1', 0, 6)).toBe('070701')
})

test.skipIf(!hasCpio)('cpio reads it: names, modes, contents', () => {
  const input = writeCpio(entries)
  const listed = spawnSync('cpio', ['-t', '--quiet'], { input, encoding: 'utf8' })
  expect([listed.status, listed.stderr, listed.stdout.trim().split('\n')]).toEqual([
    0,
    '',
    ['dev', 'init', 'lib', 'lib/odd', 'lib/empty'],
  ])
  const folder = mkdtempSync(join(tmpdir(), 'cpio-'))
  expect(spawnSync('cpio', ['-i', '--quiet', '--no-preserve-owner'], { input, cwd: folder }).status).toBe(0)
  expect([
    readFileSync(join(folder, 'init'), 'utf8'),
    readFileSync(join(folder, 'lib/odd'), 'utf8'),
    statSync(join(folder, 'lib/empty')).size,
  ]).toEqual(['#!/bin/sh\n', '12345', 0])
  expect(['init', 'lib/odd'].map((name) => (statSync(join(folder, name)).mode & 0o777).toString(8))).toEqual([
    '755',
    '644',
  ])
  rmSync(folder, { recursive: true })
})
