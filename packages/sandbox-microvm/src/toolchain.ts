/** A download is tried so often. */
const TRIES = 5
/** A login shell finds what mise installed. */
const PROFILE = '/etc/profile.d/mise.sh'

/**
 * Shell commands that install language tools with mise and packages with npm, for a new disk. They reach what the sandbox's
 * `allow` lists and nothing else: mise.run and mise.jdx.dev, then the hosts of each tool.
 *
 * @param tools what `mise use -g` takes, such as `node@lts`; they and `packages` are words without a shell's meaning
 */
export function toolchainCommands(tools: readonly string[], packages: readonly string[]): readonly string[] {
  const install = `# install mise
set -e
if ! test -x /usr/local/bin/mise; then
  curl -fsSL --retry ${TRIES} --retry-all-errors -o /tmp/mise-install https://mise.run
  MISE_INSTALL_PATH=/usr/local/bin/mise MISE_INSTALL_HELP=0 sh /tmp/mise-install
  rm /tmp/mise-install
fi
echo 'export PATH="$HOME/.local/share/mise/shims:$PATH" MISE_YES=1' > ${PROFILE}`
  return [
    ...(tools.length === 0 ? [] : [install, `# install ${tools.join(', ')}\nmise use -g -- ${tools.join(' ')}`]),
    ...(packages.length === 0
      ? []
      : [`# install ${packages.join(', ')}\nnpm install -g --no-fund --no-audit -- ${packages.join(' ')}`]),
  ]
}
