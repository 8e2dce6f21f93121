import { defineConfig, type OxlintOverride } from 'oxlint'
import { layers } from './scripts/layers.ts'

const workspacePackages = [
  ...Object.keys(layers)
    .filter((folder) => folder.startsWith('packages/'))
    .map((folder) => folder.replace('packages/', '@reve/')),
  '@reve/cli',
  '@reve/kc',
]

/** One override a package: every workspace import that the table does not grant is an error, and so is a path into a package. */
const directions = Object.entries(layers).map(([folder, allowed]): OxlintOverride => {
  const grants: readonly string[] = allowed
  const forbidden = workspacePackages.filter(
    (name) => !grants.some((grant) => grant === name || grant.startsWith(`${name}/`)),
  )
  // A grant of a subpath alone (`@reve/providers/model`) forbids the package's main entry.
  const subpathOnly = workspacePackages.filter(
    (name) => !grants.includes(name) && grants.some((grant) => grant.startsWith(`${name}/`)),
  )
  return {
    files: [`${folder}/src/**/*.ts`],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          paths: subpathOnly.map((name) => ({
            name,
            message: `${folder} may import only ${grants.filter((g) => g.startsWith(`${name}/`)).join(', ')} (scripts/layers.ts)`,
          })),
          patterns: [
            ...(forbidden.length > 0
              ? [
                  {
                    group: forbidden.flatMap((name) => [name, `${name}/*`]),
                    message: `${folder} may not import this: imports only go down (scripts/layers.ts)`,
                  },
                ]
              : []),
            {
              group: [
                '@reve/*/src/**',
                '@reve/*/dist/**',
                '**/packages/**',
                '**/apps/**',
                '../**/src/**',
                '../**/dist/**',
              ],
              message: 'import a package by its name or a declared subpath',
            },
          ],
        },
      ],
    },
  }
})

export default defineConfig({
  plugins: ['typescript', 'unicorn', 'import', 'promise', 'vitest', 'oxc'],
  categories: { correctness: 'error', suspicious: 'error' },
  rules: {
    'typescript/no-explicit-any': 'error',
    'typescript/ban-ts-comment': 'error',
    'typescript/no-floating-promises': 'error',
    'typescript/no-misused-promises': 'error',
    'typescript/await-thenable': 'error',
    'typescript/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
    'typescript/consistent-type-imports': 'error',
    'typescript/no-unnecessary-type-assertion': 'error',
    'no-empty': ['error', { allowEmptyCatch: false }],
    'no-var': 'error',
    'prefer-const': 'error',
    eqeqeq: 'error',
    'vitest/no-focused-tests': 'error',
    'vitest/valid-expect': ['error', { maxArgs: 2 }], // a second argument says which of several it was
    'typescript/require-array-sort-compare': ['error', { ignoreStringArrays: true }],
    'vitest/no-disabled-tests': 'off', // a test may be skipped by a probe with a printed reason
    'vitest/require-mock-type-parameters': 'off',
    'no-await-in-loop': 'off',
    'no-underscore-dangle': 'off',
    'no-shadow': 'off',
    'import/no-unassigned-import': 'off',
    'unicorn/no-array-sort': 'off',
    'unicorn/consistent-function-scoping': 'off',
    'vitest/expect-expect': 'off',
    'vitest/no-conditional-tests': 'off',
    'vitest/no-conditional-expect': 'off', // a property that allows a typed error looks at which one it was
    'import/no-named-as-default': 'off',
    'promise/always-return': 'off',
    'typescript/consistent-return': 'off', // `return reject(…)` ends a branch
    'unicorn/no-useless-spread': 'off', // groups a program's option with its value
    'import/no-named-as-default-member': 'off',
    'no-control-regex': 'off', // the sanitiser and parsers of bytes are about control characters
    'typescript/no-misused-spread': 'off', // spreading a string is how its code points are had
    'typescript/no-unsafe-type-assertion': 'off',
  },
  overrides: [
    ...directions,
    {
      // A library takes its surroundings through options: no environment, no working directory, no printing, no exit.
      files: ['packages/*/src/**/*.ts'],
      rules: { 'no-console': 'error', 'node/no-process-env': 'error', 'unicorn/no-process-exit': 'error' },
    },
  ],
  ignorePatterns: ['**/dist/**', '**/node_modules/**'],
})
