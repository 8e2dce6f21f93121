-- The sandbox that every command runs in: a microVM, always. No microVM, no
-- agent: there is no host mode and no switch that makes one.
--
-- workspace/ is mounted at /workspace and is the working directory, so a
-- relative path means the same on the host and in the VM. This file and the
-- rest of the agent's definition stay outside of it.

sandbox {
  image = "debian:trixie-slim",
  cpus = 2,
  memory = 2048, -- MiB
  -- root_disk = 16384, -- MiB; it can grow later, and takes what is used

  -- Debian packages of the image; leave it out for the usual tool set.
  -- packages = { "git", "python3" },

  -- Egress starts with "deny all". A host that is not listed here cannot be
  -- reached; nothing is added behind your back.
  allow = {
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "objects.githubusercontent.com",
    "raw.githubusercontent.com",
{{debian_hosts}}
    "mise.run",
    "mise.jdx.dev",
{{npm_hosts}}
    "nodejs.org",
  },

  -- A credential that the VM may use and never holds: the guest sees the
  -- placeholder alone. `source` names a variable of your environment, which
  -- must be set when reve starts:
  --   export GITHUB_TOKEN="$(gh auth token)"
  secrets = {
    {
      env = "GITHUB_TOKEN",
      source = "GITHUB_TOKEN",
      placeholder = "reve-github-token",
      hosts = { "github.com", "api.github.com" },
    },
  },

  -- Language tools of mise and packages of npm, installed once, when the disk
  -- is new. They come from hosts that `allow` has to list.
  -- mise = { "node@lts" },
  -- npm = { "@ast-grep/cli" },

  -- Commands that run once, after those. A failing one fails the start.
  -- bootstrap = { "git config --global init.defaultBranch main" },
}
