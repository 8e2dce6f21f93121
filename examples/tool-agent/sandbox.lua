-- A small image and no network: the tools need a shell and nothing else.
sandbox {
  image = "debian:trixie-slim",
  packages = { "git", "python3" },
  memory = 1024,
}
