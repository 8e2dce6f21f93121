-- The agent works on a clone of this repository in workspace/; the checkout around it is not mounted. To build there
-- it also needs the hosts of your Debian mirror and npm registry: those that `reve init` writes down in a new folder.

sandbox {
  cpus = 2,
  memory = 4096,

  allow = {
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "objects.githubusercontent.com",
    "raw.githubusercontent.com",
    "nodejs.org",
  },
}
